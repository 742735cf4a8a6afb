"""`suite verify` for people: few lines, a summary, a digest; and what a report says of its evidence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.bundle.tampering import RUNS, change, copied, shipped
from tests.command import suite

ROW = shipped("deepspeed-3M-n1").removesuffix("-r1")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for repeat in (1, 2, 3):
        copied(f"{ROW}-r{repeat}", tmp_path / "runs")
    return tmp_path / "runs"


def called(*arguments: object) -> tuple[int, str, str]:
    done = suite(*arguments)
    return done.exit_code, done.stdout, done.stderr


def halve(path: Path) -> None:
    def edit(event: dict) -> None:
        if event["kind"] in ("iteration", "phase"):
            event["seconds"] /= 2

    change(path, edit)


def test_a_finding_is_named_and_ends_in_3(runs: Path) -> None:
    halve(runs / f"{ROW}-r2")
    code, out, _ = called("verify", str(runs))
    assert code == 3
    assert out.startswith(f"{runs}/{ROW}-r1: equal\n")
    assert f"{runs}/{ROW}-r2: inconsistent\n    event-times: " in out
    assert "3 bundles: 2 equal, 1 inconsistent; findings: 1 event-times, 1 phase-times" in out
    code, out, _ = called("verify", str(runs), "--json")
    found = {Path(each["bundle"]).name: each for each in json.loads(out)}
    assert code == 3 and [each["name"] for each in found[f"{ROW}-r2"]["findings"]] == ["event-times", "phase-times"]
    assert found[f"{ROW}-r1"] == {
        "bundle": f"{runs}/{ROW}-r1",
        "status": "equal",
        "differences": [],
        "findings": [],
        "digest": found[f"{ROW}-r1"]["digest"],
    }


@pytest.mark.slow
def test_many_bundles_are_a_summary_and_some_lines_of_each_kind(tmp_path: Path) -> None:
    runs = Path(shutil.copytree(RUNS, tmp_path / "runs"))
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


def test_a_digest_is_of_one_bundle_or_of_all(runs: Path) -> None:
    for folder in (runs, runs / f"{ROW}-r1"):
        digest = called("verify", str(folder))[1].split()[-1]
        code, out, _ = called("verify", str(folder), "--digest", digest.upper())
        assert code == 0 and out.endswith(f"digest: {digest}, as expected\n")
    log = runs / f"{ROW}-r3" / "logs" / "rank-0.log"
    log.write_text(log.read_text() + " ")
    whole = called("verify", str(runs))[1].split()[-1]
    code, out, _ = called("verify", str(runs), "--digest", digest)
    assert code == 3 and f"digest: {whole}, not {digest}" in out and "3 bundles: 2 equal, 1 differs" in out
    shutil.rmtree(runs / f"{ROW}-r3")
    assert called("verify", str(runs), "--digest", whole)[0] == 3
    code, _, err = called("verify", str(runs), "--digest", "abc")
    assert code == 2 and err == "error: a digest is 64 hexadecimal digits, not 'abc'\n"


@pytest.mark.slow
def test_a_report_names_its_evidence_and_the_command_that_checks_it(runs: Path) -> None:
    output = runs.parent / "report.md"
    assert called("report", str(runs), "-o", str(output))[0] == 0
    (command,) = [line for line in output.read_text().splitlines() if line.startswith("suite verify ")]
    assert called(*command.split()[1:])[0] == 0
    evidence = json.loads(called("report", str(runs), "--json")[1])["evidence"]
    assert evidence["digest"] == command.split()[-1] and evidence["paths"] == [str(runs)]
    digests = {Path(each["path"]).name: each["digest"] for each in evidence["bundles"]}
    for name, digest in digests.items():
        assert f"{digest}  {runs}/{name}" in output.read_text()
        assert called("verify", str(runs / name), "--digest", digest)[0] == 0
    log = runs / f"{ROW}-r3" / "logs" / "rank-0.log"
    log.write_text(log.read_text() + " ")
    assert called(*command.split()[1:])[0] == 3


def test_a_run_that_does_not_fit_together_is_in_no_figure(runs: Path) -> None:
    halve(runs / f"{ROW}-r2")
    code, out, err = called("report", str(runs), "--json")
    told = json.loads(out)
    assert code == 0 and err == ""
    assert [row["runs"] for row in told["rows"]] == [2]
    (line,) = [line for line in told["caveats"] if "event-times" in line]
    assert line.startswith(f"{runs}/{ROW}-r2: left out, event-times: ")
    code, _, err = called("report", str(runs / f"{ROW}-r2"))
    assert code == 2 and "no bundle to report" in err and "event-times" in err
