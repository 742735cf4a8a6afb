"""Every command that reads results takes the file of `suite pack` as it takes the folder."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path

import pytest

from suite.bundle.archive.packing import Packing, pack
from tests.bundle.tampering import copied, shipped
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
    first, identity, signature, *lines, summary, of_archive = out.splitlines()
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


def test_an_altered_record_stays_altered(place: Path) -> None:
    record = Path(f"runs/{ROW}-r1/record.json")
    record.write_text(record.read_text().replace('"status": "ok"', '"status": "failed"'))
    assert called("pack", "runs", "-o", "altered.suite.zip")[0] == 0
    code, out, _ = called("verify", "altered.suite.zip")
    assert code == 3 and 'status: stored "failed", derived "ok"' in out


def test_report_and_compare_give_the_same_figures(place: Path) -> None:
    Path("runs").rename("folder-of-results")
    figures = []
    for path in ("folder-of-results", "results.suite.zip"):
        code, out, _ = called("report", path, "--json")
        assert code == 0
        figures.append(json.loads(out.replace(f"{path}:", "PLACE/").replace(path, "PLACE")))
    assert figures[0] == figures[1]
    code, out, _ = called("report", "results.suite.zip", "-o", "report.md")
    assert code == 0 and "suite verify results.suite.zip" in Path("report.md").read_text()
    code, out, _ = called("compare", "folder-of-results", "results.suite.zip")
    assert code == 0 and ROW.split("-n1")[0].removeprefix("deepspeed-") in out


def test_a_run_of_an_archive_is_asked_about_by_its_name(place: Path) -> None:
    code, _, err = called("rerun", f"results.suite.zip:{ROW}-r1")
    assert code == 2 and err.startswith(f"error: results.suite.zip:{ROW}-r1 is not a bundle that you recorded")
    code, _, err = called("rerun", "results.suite.zip")
    assert code == 2 and f"name the one to run again: results.suite.zip:{ROW}-r1" in err


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


def test_what_can_be_packed_no_more_is_told(place: Path) -> None:
    Path(f"runs/{ROW}-r2/manifest.json").write_text("{}")
    code, out, _ = called("pack", "runs", "-o", "a.suite.zip")
    assert code == 0 and f"left out: {ROW}-r2: damaged: " in out
    code, out, _ = called("verify", "a.suite.zip")
    assert code == 3 and "left out by the packer" in out and "missing-repeat" in out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nothing", "-o", "a.suite.zip"), "cannot read nothing"),
        (("temporary", "-o", "a.suite.zip"), "no bundle in temporary"),
        (("runs", "-o", "runs"), "is a folder"),
        (("runs", "-o", "no/such/a.suite.zip"), "there is no folder no/such"),
        (("runs", "-o", "a.suite.zip", "--sbom", "results.suite.zip"), "is no list of components"),
        (("runs", "-o", "a.suite.zip", "--licence", "none.txt"), "none.txt does not exist"),
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


def test_the_page_of_an_archive_shows_its_iterations_too(place: Path) -> None:
    sizes = []
    for path in ("runs", "results.suite.zip"):
        assert called("report", path, "--html", "page.html")[0] == 0
        text = Path("page.html").read_text()
        sizes.append(text.count("generate"))
    assert sizes[0] == sizes[1] > 3
