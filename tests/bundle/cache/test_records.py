"""What was derived is found again, and never in the place of what other evidence or other code gives."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.bundle.cache import code, database, reading, table
from suite.bundle.cache.packing import Unpacking, packed
from suite.bundle.cache.survey import survey
from suite.bundle.cache.table import Derived, records_of
from suite.bundle.derive import StillRunning, derive
from suite.bundle.evidence import digest_of
from suite.bundle.files import DamagedBundle
from suite.bundle.findings import Finding
from suite.bundle.record import text_of
from suite.bundle.store import Bundle
from tests.bundle.recorded import TWO_RANKS, ranks_of
from tests.synthetic import grpo_workload, make_bundle, synthetic_manifest, write_bundle

FINDING = Finding(name="rank-times", text="an iteration took 1 s on rank 0 and 2 s on rank 1")
DERIVATION_3 = {"derivation": 3, "packages": {"torch": "2"}, "ceilings": {"copy_bytes_per_second": 1e22}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, to which bundles that were made just now may go."""
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("suite.bundle.cache.survey.SETTLED_SECONDS", -1.0)
    return tmp_path / "cache"


@pytest.fixture
def since(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """How many records were derived, not found, and how many bundles were hashed since it was called last."""
    counted = [Mock(wraps=reading.examined), Mock(wraps=reading.read_once)]
    for name, mock in zip(("examined", "read_once"), counted, strict=True):
        monkeypatch.setattr(reading, name, mock)

    def calls() -> list[int]:
        counts = [mock.call_count for mock in counted]
        for mock in counted:
            mock.reset_mock()
        return counts

    return calls


@pytest.fixture
def known(tmp_path: Path, since: Callable[[], list[int]]) -> Path:
    """A bundle whose record is in the cache."""
    path = recorded(tmp_path)
    read(path)
    assert since() == [1, 1]
    return path


def read(path: Path) -> Derived:
    (found,) = records_of(survey([path])[0])
    if isinstance(found, Exception):
        raise found
    return found


def recorded(root: Path, **changes: object) -> Path:
    path = make_bundle(root, synthetic_manifest(layout=TWO_RANKS), facts=DERIVATION_3, **changes)  # type: ignore[arg-type]
    Bundle(path).write_record(derive(Bundle(path)))
    return path


def test_what_was_derived_is_found_again_without_reading_a_file(tmp_path, since):
    path = recorded(tmp_path)
    first = read(path)
    assert since() == [1, 1]
    second = read(path)
    assert since() == [0, 0]
    assert (second.record, second.manifest) == (derive(Bundle(path)), Bundle(path).manifest())
    assert second == first
    assert second.digest == digest_of(Bundle(path)) and second.difference == ""


def test_a_moved_or_copied_bundle_is_hashed_but_not_derived(known, tmp_path, since):
    copy = tmp_path / "b" / known.name
    shutil.copytree(known, copy)
    assert read(copy).record == derive(Bundle(copy))
    assert since() == [0, 1]
    read(copy)
    assert since() == [0, 0]


@pytest.mark.parametrize("touched", ["manifest.json", "environment.json", "events/rank-1.jsonl", "events/driver.jsonl"])
def test_other_bytes_of_the_same_length_and_time_are_another_bundle(known, since, touched):
    file = known / touched
    status = file.stat()
    text = file.read_text()
    changed = text.replace("host-a", "host-b").replace('"repeat":1', '"repeat":2').replace("local", "lokal")
    assert changed != text and len(changed) == len(text)
    file.write_text(changed)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    found = read(known)
    assert since()[1] == 1
    assert found.record == derive(Bundle(known))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_byte_is_hidden(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever byte of whatever file is another one, the answer is that of a fresh derivation, or the same damage."""
    path = recorded(tmp_path_factory.mktemp("flipped"))
    before = read(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "lock" and file.stat().st_size)
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    status = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    try:
        expected = derive(Bundle(path))
        expected_digest = digest_of(Bundle(path))
    except DamagedBundle as error:
        with pytest.raises(DamagedBundle) as caught:
            read(path)
        assert str(caught.value) == str(error)
        return
    try:
        after = read(path)
    except DamagedBundle:
        assert file.name == "record.json"
        return
    assert (after.record, after.digest) == (expected, expected_digest)
    if file.name == "record.json":
        assert after.difference and after.digest == before.digest
    else:
        assert after.digest != before.digest


def test_a_changed_record_is_told_every_time(known):
    body = json.loads((known / "record.json").read_text())
    body["iterations"]["seconds"] = [seconds / 2 for seconds in body["iterations"]["seconds"]]
    (known / "record.json").write_text(json.dumps(body))
    for _ in range(2):
        assert "iterations.seconds[0]: stored 0.5, derived 1.0 and 9 more" in read(known).difference
    (known / "record.json").unlink()
    assert read(known).difference == ""


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(table, "code_key", lambda *rooms: b"another version"), (os, "geteuid", lambda: os.getuid() + 1)],
    ids=["other code", "another user's folder"],
)
def test_other_circumstances_derive_again(known, since, monkeypatch, module, name, value):
    monkeypatch.setattr(module, name, value)
    read(known)
    assert since()[0] == 1


def test_the_key_of_the_code_follows_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (*code.ROOMS, "worker"):
        shutil.copytree(code._PACKAGE / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "_PACKAGE", tmp_path)

    def key() -> bytes:
        code._digest.cache_clear()
        return code.code_key.__wrapped__()

    keys = [key()]
    sources = ("bundle/rates.py", "theory/memory.py", "spec/manifest.py", "stats/intervals.py", "worker/phases.json")
    for changed in (*sources, "bundle/new.py"):
        assert key() == keys[-1]
        with (tmp_path / changed).open("a") as file:
            file.write("\n")
        keys.append(key())
    assert len(set(keys)) == len(keys)


def test_a_run_that_is_under_way_is_not_looked_up(known):
    with Bundle(known).hold(), pytest.raises(StillRunning):
        read(known)


def test_a_link_in_the_bundle_keeps_it_from_being_kept(tmp_path, since):
    path = make_bundle(tmp_path, synthetic_manifest())
    (path / "logs" / "more").symlink_to("/dev/null")
    assert read(path).digest is None
    read(path)
    assert since()[0] == 2


def test_records_of_every_kind_are_found_again_as_they_were(tmp_path: Path) -> None:
    grpo, plain = synthetic_manifest(workload=grpo_workload(), layout=TWO_RANKS), synthetic_manifest()
    chosen = plain.model_copy(update={"run": plain.run.model_copy(update={"iterations": 9})})
    odd = DERIVATION_3 | {"text": "\u00b5 \u2028", "number": -0.0}
    made = [
        make_bundle(tmp_path / "a", grpo, details={"train/forward": 0.1}, staleness=1),
        make_bundle(tmp_path / "b", status="failed", completed=0),
        make_bundle(tmp_path / "c", device={"temperature": 1}, facts=odd),
        write_bundle(tmp_path / "d", plain, ranks_of(plain), []),
        make_bundle(tmp_path / "e", chosen, completed=chosen.measure.warmup + 9),
    ]
    shared = Unpacking()
    for path in made:
        manifest, record = Bundle(path).manifest(), derive(Bundle(path))
        derived = Derived(manifest, record, "0" * 64, (FINDING,), "a difference")
        assert shared.unpacked(packed(derived), manifest) == derived
        found = [read(path) for _ in range(2)]
        assert found[0] == found[1] and found[1].manifest == manifest
        assert text_of(found[1].record) == text_of(record)


#: What can be wrong with all bytes of the file that everything is kept in; the other damage is done by SQL.
SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "text": lambda content: b"not a database, but as long as one could be" * 100,
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "zeros": lambda content: content[:4096].ljust(len(content), b"\0"),
}


@pytest.mark.parametrize(
    "change",
    [
        *SPOILT,
        "DROP TABLE kept",
        "DROP TABLE runs",
        "ALTER TABLE runs RENAME COLUMN record TO body",
        "UPDATE kept SET body = 'text'",
        "UPDATE kept SET body = 7",
        "UPDATE runs SET record = 'text'",
        "UPDATE runs SET record = NULL",
        "UPDATE runs SET state = 7, content = 'text'",
        "UPDATE runs SET content = x'00'",
        "UPDATE runs SET record = substr(record, 1, length(record) - 1) || x'20'",
        "UPDATE runs SET record = (SELECT other.record FROM runs AS other WHERE other.name <> runs.name LIMIT 1)",
    ],
)
def test_a_damaged_cache_costs_time_and_is_made_anew(known, tmp_path, cache, since, change):
    expected = read(known)
    read(make_bundle(tmp_path, synthetic_manifest(repeat=2), seconds=2.0))
    (file,) = cache.iterdir()
    if change in SPOILT:
        file.write_bytes(SPOILT[change](file.read_bytes()))
    else:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(change)
    for _ in range(3):
        assert read(known) == expected
    since()
    assert read(known) == expected
    assert since() == [0, 0]
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "spoilt",
    [lambda value: b"", lambda value: b"\0\0\0\2{}", lambda value: b"\0\0\0\4null", lambda value: value[:-1]],
    ids=["nothing", "no record", "null", "cut"],
)
def test_what_its_check_says_is_whole_but_is_no_record_is_derived_again(tmp_path, since, monkeypatch, spoilt):
    path, checked = recorded(tmp_path), database.checked
    with monkeypatch.context() as patched:
        patched.setattr(table, "checked", lambda name, value: checked(name, spoilt(value)))
        expected = read(path)
    since()
    assert read(path) == expected
    assert since()[0] == 1


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_or_a_file_that_others_may_write_to_is_not_used(known, cache, since, mode):
    (file,) = cache.iterdir()
    assert (cache.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    for place in (cache, file):
        was = place.stat().st_mode
        place.chmod(mode)
        read(known)
        assert since()[0] == 1
        place.chmod(was)


def test_a_link_in_the_place_of_the_folder_or_the_file_is_not_followed(tmp_path, cache, since, monkeypatch):
    path = recorded(tmp_path)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "elsewhere")
    read(path)
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere" / database.FILE).symlink_to(tmp_path / "planted")
    read(path)
    assert since()[0] == 2
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("place", ["off", "/dev/null/cache", "/proc/cache", "too early"])
def test_without_a_place_to_keep_them_or_just_after_they_were_written_records_are_derived(
    tmp_path, since, monkeypatch, place
):
    if place == "too early":
        monkeypatch.setattr("suite.bundle.cache.survey.SETTLED_SECONDS", 3600.0)
    else:
        monkeypatch.setenv("SUITE_CACHE", place)
    path = recorded(tmp_path)
    assert read(path) == read(path)
    assert since()[0] == 2


def test_the_place_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUITE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = recorded(tmp_path)
    for value, expected in ((str(tmp_path / "xdg"), "xdg/suite"), ("relative", "home/.cache/suite")):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        read(path)
        assert (tmp_path / expected / database.FILE).is_file()


@pytest.mark.parametrize(("lock", "derived"), [("SHARED", 0), ("EXCLUSIVE", 1)])
def test_a_cache_that_another_process_holds_is_read_where_it_can_be(
    known, tmp_path, cache, since, monkeypatch, lock, derived
):
    monkeypatch.setattr(database, "_WAIT_SECONDS", 0.0)
    expected = read(known)
    since()
    with closing(sqlite3.connect(cache / database.FILE, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE" if lock == "EXCLUSIVE" else "BEGIN")
        other.execute("SELECT count(*) FROM runs").fetchall()
        assert read(known) == expected
        assert since()[0] == derived
        more = make_bundle(tmp_path, synthetic_manifest(repeat=2))
        assert read(more).record == derive(Bundle(more))
    assert read(known) == expected


def test_a_cache_that_has_grown_too_large_is_begun_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MOST_BYTES", 1 << 20)
    cache.mkdir(mode=0o700)

    def kept(size: int) -> bytes | None:
        """What was kept by the one before; then something of that size is."""
        found = database.Database(cache)
        before = found.get(b"run")
        found.put(b"run", bytes(size))
        found.close()
        return before

    assert [kept(size) for size in (10, 2 << 20, 10, 10)] == [None, bytes(10), None, bytes(10)]
    assert (cache / database.FILE).stat().st_size < 1 << 20


def test_what_runs_have_in_common_is_in_memory_once(tmp_path: Path) -> None:
    paths = [make_bundle(tmp_path, synthetic_manifest(repeat=each), float(each), facts=DERIVATION_3) for each in (1, 2)]
    first, second = records_of(survey(paths)[0])
    assert first.manifest.workload is second.manifest.workload
    assert (first.manifest.run.repeat, second.manifest.run.repeat) == (1, 2)
    assert first.record.run.layout is second.record.run.layout is first.manifest.layout
    assert first.record.memory.floor is second.record.memory.floor
    facts = [one.record.environment.worker or {} for one in (first, second)]
    assert facts[0]["packages"] is facts[1]["packages"]
