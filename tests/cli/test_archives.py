"""`suite verify`, and that every command that reads results takes the file of `suite pack` as it takes the folder."""

import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

import pytest

from suite.bundle.archive.packing import Packing, pack
from tests.bundle.tampering import RUNS, change, copied, shipped
from tests.command import suite

ROW = shipped("deepspeed-3M-n1").removesuffix("-r1")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    for repeat in (1, 2, 3):
        copied(f"{ROW}-r{repeat}", tmp_path / "runs")
    pack(Path("runs"), Path("results.suite.zip"), Packing(keep_identity=True))
    return tmp_path


def called(*arguments: object) -> tuple[int, str, str]:
    done = suite(*arguments)
    assert not list(Path("temporary").iterdir()), "what was unpacked is gone"
    assert "suite-archive-" not in done.output, "no temporary name is shown"
    return done.exit_code, done.stdout, done.stderr


def test_verify_says_of_the_archive_what_it_says_of_the_folder(place: Path) -> None:
    code, out, _ = called("verify", "runs")
    *_, digest = out.splitlines()
    code, out, _ = called("verify", "results.suite.zip")
    first, identity, signature, *lines, of_archive = out.splitlines()
    lines, (summary, *_) = lines[:3], lines[3:]
    assert code == 0 and of_archive == digest and summary == "3 bundles: 3 equal"
    assert first.startswith("results.suite.zip: ") and identity == "    identity: kept, as it was asked for"
    assert signature == "    signature: not signed"
    assert lines == [f"results.suite.zip:{ROW}-r{repeat}: equal" for repeat in (1, 2, 3)]
    code, out, _ = called("verify", "results.suite.zip", "--digest", digest.removeprefix("digest: "), "--json")
    found = json.loads(out)
    assert code == 0 and [each["bundle"] for each in found] == [f"results.suite.zip:{ROW}-r{n}" for n in (1, 2, 3)]
    assert found[0]["archive"]["signature"] == {"outcome": "not signed", "signer": None, "key": None}
    assert called("verify", f"results.suite.zip:{ROW}-r2")[0] == 0
    code, _, err = called("verify", "results.suite.zip:nothing")
    assert code == 2 and "results.suite.zip has no run 'nothing'; it has " in err


def test_an_altered_record_stays_altered_and_what_can_be_packed_no_more_is_told(place: Path) -> None:
    record = Path(f"runs/{ROW}-r1/record.json")
    record.write_text(record.read_text().replace('"status": "ok"', '"status": "failed"'))
    Path(f"runs/{ROW}-r2/manifest.json").write_text("{}")
    code, out, _ = called("pack", "runs", "-o", "a.suite.zip")
    assert code == 0 and f"left out: {ROW}-r2: damaged: " in out
    code, out, _ = called("verify", "a.suite.zip")
    assert code == 3 and 'status: stored "failed", derived "ok"' in out
    assert "left out by the packer" in out and "missing-repeat" in out


def test_report_and_compare_give_the_same_figures(place: Path) -> None:
    Path("runs").rename("folder-of-results")
    figures = []
    for path in ("folder-of-results", "results.suite.zip"):
        code, out, _ = called("report", path, "--json")
        assert code == 0 and called("report", path, "--html", "page.html")[0] == 0
        iterations = Path("page.html").read_text().count("generate")
        figures.append((iterations, json.loads(out.replace(f"{path}:", "PLACE/").replace(path, "PLACE"))))
    assert figures[0] == figures[1] and iterations > 3, "the page of an archive shows its iterations too"
    code, out, _ = called("report", "results.suite.zip", "-o", "report.md")
    assert code == 0 and "suite verify results.suite.zip" in Path("report.md").read_text()
    code, out, _ = called("compare", "folder-of-results", "results.suite.zip")
    assert code == 0 and ROW.split("-n1")[0].removeprefix("deepspeed-") in out


def test_a_run_of_an_archive_is_asked_about_by_its_name(place: Path) -> None:
    code, _, err = called("rerun", f"results.suite.zip:{ROW}-r1")
    assert code == 2 and err.startswith(f"error: {ROW}-r1 took turns by iteration with other rows")
    code, _, err = called("rerun", "results.suite.zip")
    assert code == 2 and f"name one: results.suite.zip:{ROW}-r1" in err


def test_unpacked_it_is_the_folder(place: Path) -> None:
    code, out, _ = called("unpack", "results.suite.zip")
    assert code == 0 and "unpacked to results; its results are results/runs" in out

    def files(root: str) -> dict[str, bytes]:
        found = Path(root).rglob("*")
        return {str(path.relative_to(root)): path.read_bytes() for path in found if path.is_file()}

    assert files("results/runs") == files("runs")
    assert Path("results/licences/suite.txt").read_text().lstrip().startswith("Apache License")
    code, _, err = called("unpack", "results.suite.zip")
    assert code == 2 and "results exists; nothing is overwritten" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nothing", "-o", "a.suite.zip"), "cannot read nothing"),
        (("temporary", "-o", "a.suite.zip"), "no bundle in temporary"),
        (("runs", "-o", "runs"), "it is not a regular file"),
        (("runs", "-o", "no/such/a.suite.zip"), "there is no folder no/such"),
        (("runs", "-o", "a.suite.zip", "--sbom", "results.suite.zip"), "is no CycloneDX list of components"),
        (("runs", "-o", "a.suite.zip", "--licence", "none.txt"), "there is no file none.txt"),
        (("runs", "-o", "a.suite.zip", "--keep-identity", "--keep", "x"), "leave out --keep-identity"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(arguments: tuple[str, ...], error: str, place: Path) -> None:
    before = sorted(os.listdir())
    code, _, err = called("pack", *arguments)
    assert code == 2 and error in err and err.count("\n") == 1 and sorted(os.listdir()) == before


def test_a_list_of_what_an_image_holds_and_a_licence_travel(place: Path) -> None:
    Path("engines.cdx.json").write_text('{"bomFormat": "CycloneDX", "specVersion": "1.6"}')
    Path("CC-BY.txt").write_text("Anybody may use these results.")
    arguments = ("--sbom", "engines.cdx.json", "--licence", "CC-BY.txt", "--json")
    code, out, _ = called("pack", "runs", "-o", "a.suite.zip", *arguments)
    told = json.loads(out)
    assert code == 0 and told["sboms"] == ["sboms/engines.cdx.json"]
    assert told["licences"] == ["licences/CC-BY.txt", "licences/suite.txt"]
    with zipfile.ZipFile("a.suite.zip") as archive:
        assert json.loads(archive.read("sboms/engines.cdx.json"))["bomFormat"] == "CycloneDX"


def test_runs_and_export_take_the_archive_as_the_folder(place: Path) -> None:
    rows = {}
    for name in ("runs", "results.suite.zip"):
        code, out, _ = called("runs", "list", name, "--json")
        listed = json.loads(out)["runs"]
        assert code == 0 and [run["path"].startswith(name) for run in listed] == [True] * 3
        assert called("export", name, "-o", "rows.jsonl")[0] == 0
        rows[name] = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
        assert [row["path"].startswith(name) for row in rows[name]] == [True] * 3
    without_path = [[{**row, "path": ""} for row in each] for each in rows.values()]
    assert without_path[0] == without_path[1]
    code, _, err = called("runs", "remove", "results.suite.zip", "--yes")
    assert code == 2 and Path("results.suite.zip").is_file(), err


def halve(path: Path) -> None:
    def edit(event: dict) -> None:
        if event["kind"] in ("iteration", "phase"):
            event["seconds"] /= 2

    change(path, edit)


def append_to_log(place: Path) -> None:
    with (place / f"runs/{ROW}-r3/logs/rank-0.log").open("a") as log:
        log.write(" ")


def test_a_finding_is_named_and_ends_in_3(place: Path) -> None:
    halve(place / f"runs/{ROW}-r2")
    code, out, _ = called("verify", "runs")
    assert code == 3
    assert out.startswith(f"runs/{ROW}-r1: equal\n")
    assert f"runs/{ROW}-r2: inconsistent\n    event-times: " in out
    assert "3 bundles: 2 equal, 1 inconsistent; findings: 1 event-times" in out
    code, out, _ = called("verify", "runs", "--json")
    found = {Path(each["bundle"]).name: each for each in json.loads(out)}
    assert code == 3 and found[f"{ROW}-r2"]["findings"][0]["name"] == "event-times"
    assert found[f"{ROW}-r1"]["status"] == "equal"


@pytest.mark.slow
def test_many_bundles_are_a_summary_and_some_lines_of_each_kind(place: Path) -> None:
    runs = Path(shutil.copytree(RUNS, place / "many"))
    count = len(list(runs.glob("*-r*")))
    for record in runs.glob("*/record.json"):
        record.write_text(record.read_text().replace('"seconds": 0.', '"seconds": 1.'))
    (runs / f"{ROW}-r1" / "manifest.json").write_text("{")
    code, out, _ = called("verify", str(runs))
    assert code == 2 and len(out.splitlines()) < 40
    assert f"\nand {count - 6} more bundles: differs (--json has them)\n" in out
    assert f"{count} bundles: {count - 1} differs, 1 damaged\n" in out
    assert len(json.loads(called("verify", str(runs), "--json")[1])) == count
    _, _, err = called("report", str(runs))
    assert len(err.splitlines()) < 20
    assert f"and {count - 6} more bundles: record.json is not what its events give (suite verify --json)\n" in err


def test_a_digest_is_of_one_bundle_or_of_all(place: Path) -> None:
    for folder in ("runs", f"runs/{ROW}-r1"):
        digest = called("verify", folder)[1].split()[-1]
        code, out, _ = called("verify", folder, "--digest", digest.upper())
        assert code == 0 and out.endswith(f"digest: {digest}, as expected\n")
    append_to_log(place)
    whole = called("verify", "runs")[1].split()[-1]
    code, out, _ = called("verify", "runs", "--digest", digest)
    assert code == 3 and f"digest: {whole}, not {digest}" in out and "3 bundles: 2 equal, 1 differs" in out
    shutil.rmtree(place / f"runs/{ROW}-r3")
    assert called("verify", "runs", "--digest", whole)[0] == 3
    code, _, err = called("verify", "runs", "--digest", "abc")
    assert code == 2 and err == "error: a digest is 64 hexadecimal digits, not 'abc'\n"


@pytest.mark.slow
def test_a_report_names_its_evidence_and_the_command_that_checks_it(place: Path) -> None:
    output = place / "report.md"
    assert called("report", "runs", "-o", "report.md")[0] == 0
    (command,) = [line for line in output.read_text().splitlines() if line.startswith("suite verify ")]
    assert called(*command.split()[1:])[0] == 0
    evidence = json.loads(called("report", "runs", "--json")[1])["evidence"]
    assert evidence["digest"] == command.split()[-1] and evidence["paths"] == ["runs"]
    digests = {Path(path).name: digest for path, digest in evidence["bundles"].items()}
    written = output.read_text() + "".join(path.read_text() for path in (place / "report-assets").glob("d*"))
    for name, digest in digests.items():
        assert f"{digest}  runs/{name}" in written
        assert called("verify", f"runs/{name}", "--digest", digest)[0] == 0
    append_to_log(place)
    assert called(*command.split()[1:])[0] == 3


def test_a_run_that_does_not_fit_together_is_in_no_figure(place: Path) -> None:
    halve(place / f"runs/{ROW}-r2")
    code, out, err = called("report", "runs", "--json")
    told = json.loads(out)
    assert code == 0 and err == ""
    assert [row["runs"] for row in told["rows"]] == [2]
    (line,) = [line for line in told["caveats"] if "event-times" in line]
    assert line.startswith(f"runs/{ROW}-r2: left out, event-times: ")
    code, _, err = called("report", f"runs/{ROW}-r2")
    assert code == 2 and "no bundle to report" in err and "event-times" in err
