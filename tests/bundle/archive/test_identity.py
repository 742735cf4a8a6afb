"""Nothing in an archive tells who ran it and where, and all that was measured is still what it was."""

import gzip
import json
import sys
import zipfile
from pathlib import Path

import pytest

from suite.bundle.archive.identity import Identities
from suite.bundle.archive.packing import Packing, pack
from suite.bundle.archive.scrubbing import learn_json, require_free_of_identity, scrub_json
from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import differences, verify_all
from suite.launch.cluster.submission import submissions
from suite.spec.base import UsageError
from suite.spec.manifest import manifest_hash
from tests.bundle.archive.planted import FACTS, HOME, TRACES, plant
from tests.bundle.imported.made import TOLD, imported
from tests.bundle.tampering import change, copied, derive_again, shipped
from tests.command import refused, suite


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def traces_in(data: bytes) -> list[str]:
    """Also where letters are escaped as JSON does."""
    text = data.decode(errors="replace").lower().replace("\0", "")
    try:
        text += json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError:
        text += "".join(
            json.dumps(json.loads(line), ensure_ascii=False) for line in text.splitlines() if line[:1] == "{"
        )
    return [trace for trace in TRACES if trace.lower() in text]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def archive(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "results.suite.zip"
    pack(folder, path, Packing())
    return path


def test_planted_facts_are_in_the_folder_and_with_keep_identity_in_the_archive(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "kept.suite.zip", Packing(keep_identity=True))
    in_folder = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for everything in (in_folder, b"".join(contents(tmp_path / "kept.suite.zip").values())):
        assert set(traces_in(everything.replace(b"{", b" "))) >= set(FACTS.values()) - {FACTS["another user"]}


def test_no_planted_fact_is_in_the_archive(archive: Path) -> None:
    found = {name: traces_in(data) + traces_in(name.encode()) for name, data in contents(archive).items()}
    assert {name: traces for name, traces in found.items() if traces} == {}
    assert [trace for trace in TRACES if trace.lower().encode() in archive.read_bytes().lower()] == []


def test_what_was_scrubbed_is_told_by_kind(folder: Path, tmp_path: Path) -> None:
    done = suite("pack", folder, "-o", tmp_path / "a.suite.zip")
    assert done.exit_code == 0 and "identity: scrubbed " in done.stdout
    for kind in ("hosts", "users", "paths", "addresses", "containers", "serials", "secrets"):
        assert f" {kind} in " in done.stdout
    assert traces_in(done.stdout.replace(str(tmp_path), "").encode()) == []


def test_records_verify_and_say_what_they_said(folder: Path, archive: Path, tmp_path: Path) -> None:
    assert suite("unpack", archive, "-o", tmp_path / "out").exit_code == 0
    before = {bundle.id: (bundle, result) for bundle, result in verify_all(find_bundles([folder]))}
    after = {bundle.id: (bundle, result) for bundle, result in verify_all(find_bundles([tmp_path / "out/runs"]))}
    assert before.keys() == after.keys() and len(before) == 3
    (submitted,) = submissions(tmp_path / "out/runs")
    assert submitted.job.env["LOGNAME"].startswith("scrubbed-user-") and submitted.run_id.endswith("-r9")
    index = json.loads(contents(archive)["suite-archive.json"])
    told = {run["id"]: run for run in index["runs"]}
    for name, (bundle, result) in after.items():
        old, old_result = before[name]
        assert result.status == old_result.status == "equal"
        assert [finding.name for finding in result.findings] == [finding.name for finding in old_result.findings]
        assert (bundle.path / "manifest.json").read_bytes() == (old.path / "manifest.json").read_bytes()
        assert told[name]["digest"] == result.digest and told[name]["digest_before"] == old_result.digest
        one, two = (json.loads((each.path / "record.json").read_text()) for each in (old, bundle))
        changed = {line.partition(":")[0].partition(".")[0] for line in differences(one, two)}
        assert changed <= {"environment", "evidence"} and two["throughput"] == one["throughput"]


def test_one_machine_is_still_one_and_two_are_two(archive: Path) -> None:
    files = contents(archive)
    hosts = set()
    for name, data in files.items():
        if name.endswith("rank-0.jsonl"):
            hosts |= {json.loads(line)["host"] for line in data.splitlines() if json.loads(line)["kind"] == "start"}
    assert len(hosts) == 1 and hosts.pop().startswith("scrubbed-host-")


def test_the_same_folder_gives_the_same_bytes_and_what_was_scrubbed_is_packed_again_as_it_is(folder, archive, tmp_path):
    for path in folder.rglob("*"):
        path.touch()
    pack(folder, tmp_path / "again.suite.zip", Packing())
    assert (tmp_path / "again.suite.zip").read_bytes() == archive.read_bytes()
    suite("unpack", archive, "-o", tmp_path / "out")
    pack(tmp_path / "out/runs", tmp_path / "once-more.suite.zip", Packing())
    one, two = contents(archive), contents(tmp_path / "once-more.suite.zip")
    assert json.loads(two.pop("suite-archive.json"))["scrubbed"] == {}
    assert two == {name: data for name, data in one.items() if name != "suite-archive.json"}


def with_variable(folder: Path, value: str) -> None:
    """A bundle whose manifest tells of a variable, hashed and derived as one that was measured so."""
    path = copied(shipped("deepspeed-3M-n1"), folder)
    manifest = Bundle(path).manifest()
    body = json.loads(manifest.model_dump_json(by_alias=True))
    body["measure"]["variables"] = {"HF_HOME": value}
    body["hash"] = manifest_hash(body)
    (path / "manifest.json").write_text(json.dumps(body))
    events = (path / "events/rank-0.jsonl").read_text().replace(manifest.hash, body["hash"])
    (path / "events/rank-0.jsonl").write_text(events)
    derive_again(path)


def test_identity_that_a_hash_binds_is_refused_unless_it_may_stay(tmp_path: Path) -> None:
    with_variable(tmp_path / "runs", "/data/acme/models")
    target = tmp_path / "a.suite.zip"
    line = refused("pack", tmp_path / "runs", "-o", target)
    assert "its manifest, which its hash binds (measure.variables.HF_HOME: stored" in line and "--keep" in line
    assert not target.exists()
    assert suite("pack", tmp_path / "runs", "-o", target, "--keep", "/data/acme").exit_code == 0
    assert suite("verify", target).exit_code == 0


def test_a_word_can_be_scrubbed_and_another_can_stay(folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "a.suite.zip", Packing(keep=("dgx-acme17",), scrub=("fused",)))
    whole = b"".join(data for name, data in contents(tmp_path / "a.suite.zip").items() if name.startswith("runs/"))
    assert b"dgx-acme17" in whole and b"(fused)" not in whole


def test_no_committed_bundle_has_identity_in_its_manifest() -> None:
    """Else nobody could pack what the suite ships."""
    results = Path(__file__).parents[3] / "docs/results"
    bundles = find_bundles([results])
    names = Identities()
    for bundle in bundles:
        learn_json(bundle.environment(), names)
    assert len(bundles) > 100
    for bundle in bundles:
        require_free_of_identity(bundle, names)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("wrote 3 tokens/s and 2 GB/s, 1/2 of it", None),
        ("torch 2.13.0+cpu, driver 570.86.10, at 12:34:56", None),
        ("see https://github.com/pytorch/pytorch/issues/1 and /usr/lib/python3/x.py", None),
        ("listening on 127.0.0.1:80, 0.0.0.0 and ::1 of localhost", None),
        ("std::vector c10::Error add::face", None),
        ("suite/events/1 train/forward ./manifest.json", None),
        ("ProcessGroupNCCL.cpp:1234 module.py:2345", None),
        ("from 10.1.2.3.", "from scrubbed-address-1."),
        ("[::ffff:10.1.2.3]:80", "[::ffff:scrubbed-address-1]:80"),
        ("fe80::1%eth0 up", "scrubbed-address-1 up"),
        ("tcp://node17:29500", "tcp://scrubbed-host-1:29500"),
        ("https://git.acme.io/team/x?y=1", "https://scrubbed-host-1/scrubbed-path-1"),
        (f"at {HOME}/me/x/y.py:12", "at scrubbed-path-1:12"),
        ("in /opt/acme/lib/python3/site-packages/torch/a.py", "in scrubbed-path-1/site-packages/torch/a.py"),
        ("Serial Number: ABC-123-X", "Serial Number: scrubbed-serial-1"),
        ("enx3cecef123456 is up", "scrubbed-address-1 is up"),
        ("Bearer abcdefghijklmnop", "Bearer [left out]"),
        ("ip-10-0-0-12.ec2.internal", "scrubbed-host-1"),
    ],
)
def test_texts(text: str, after: str | None) -> None:
    names = Identities()
    names.learn(text)
    assert names.scrub(text) == (text if after is None else after)


def test_a_host_named_like_a_word_of_the_suite_changes_no_other_word() -> None:
    names, event = Identities(), {"kind": "start", "host": "train", "phase": "train"}
    learn_json(event, names)
    assert scrub_json(event, names) == {"kind": "start", "host": "scrubbed-host-1", "phase": "train"}
    facts = {"packages": {"nvidia-cublas": "13.1.0.3"}}
    assert scrub_json(facts, names) == facts, "four numbers of a version are no address"


def test_a_host_named_like_a_part_of_a_runs_id_leaves_the_id(tmp_path: Path) -> None:
    path = copied(shipped("deepspeed-3M-n1"), tmp_path / "runs")
    change(path, lambda event: event.update(host="n1") if event["kind"] == "start" else None)
    index = pack(tmp_path / "runs", tmp_path / "a.suite.zip", Packing())
    assert index.runs[0].path == index.runs[0].id == path.name
    assert b'"host":"scrubbed-host-' in contents(tmp_path / "a.suite.zip")[f"runs/{path.name}/events/rank-0.jsonl"]
    assert suite("verify", tmp_path / "a.suite.zip").exit_code == 0


def with_trace(folder: Path, data: bytes) -> Path:
    path = copied(shipped("deepspeed-3M-n1"), folder)
    (path / "profile").mkdir()
    (path / "profile/rank-0-train.json.gz").write_bytes(data)
    derive_again(path)
    return path


def test_traces_of_a_profile_are_scrubbed_inside(tmp_path: Path) -> None:
    trace = f'{{\n"traceEvents": [],\n"traceName": "{FACTS["home"]}/trace.json"}}\n'
    path = with_trace(tmp_path / "runs", gzip.compress(trace.encode()))
    pack(tmp_path / "runs", tmp_path / "a.suite.zip", Packing())
    inside = gzip.decompress(contents(tmp_path / "a.suite.zip")[f"runs/{path.name}/profile/rank-0-train.json.gz"])
    assert traces_in(inside) == [] and json.loads(inside)["traceEvents"] == []
    assert suite("verify", tmp_path / "a.suite.zip").exit_code == 0


def test_a_packed_file_that_is_none_cannot_be_scrubbed(tmp_path: Path) -> None:
    with_trace(tmp_path / "runs", b"no such thing")
    assert "cannot be unpacked" in refused("pack", tmp_path / "runs", "-o", tmp_path / "a.suite.zip")
    assert not (tmp_path / "a.suite.zip").exists()


#: as deep as json reads, and deeper than it writes
DEEP = 600 if sys.version_info < (3, 12) else 3000


@pytest.mark.parametrize(
    "text", [f'{{"a": {"[" * DEEP}{"]" * DEEP}}}', '{"a": 1e999, "host": "bench-77"}'], ids=["deep", "large"]
)
@pytest.mark.parametrize("place", ["logs/x.json", "../study.json", "../.submitted/x.json", "../b/.submitted/x.json"])
def test_json_that_cannot_be_written_again_is_refused_in_a_line(place: str, text: str, tmp_path: Path) -> None:
    file = copied(shipped("deepspeed-3M-n1"), tmp_path / "runs") / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    assert refused("pack", tmp_path / "runs", "-o", tmp_path / "a.suite.zip")


def test_words_of_an_import_that_grow_too_long_without_identity_are_refused_in_a_line(tmp_path: Path) -> None:
    imported(tmp_path / "runs", told=TOLD.model_copy(update={"note": "host=bench-7 " + "bench-7 " * 22}))
    assert "told.note" in refused("pack", tmp_path / "runs", "-o", tmp_path / "a.suite.zip")


def test_a_figure_that_scrubbing_would_change_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"would change its (record|manifest)"):
        pack(folder, tmp_path / "a.suite.zip", Packing(scrub=("deepspeed",)))
    assert not list(tmp_path.iterdir())
