"""`suite import`, and that every command shows such a row as what it is."""

import csv
import json
import os
from pathlib import Path

import jsonschema
import pytest

from suite import api
from suite.bundle.imported.record import MARK, Told
from suite.export.schema import schema
from tests.bundle.imported.made import imported, verl_console
from tests.command import refused, suite, told
from tests.synthetic import make_bundle, synthetic_manifest


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(verl_console())
    return path


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A results folder with three measured runs and an imported log."""
    root = tmp_path / "runs"
    for repeat in (1, 2, 3):
        make_bundle(root, synthetic_manifest(repeat=repeat), float(repeat))
    said = Told(model="Qwen/Qwen3-8B", devices=8, device="NVIDIA H100 80GB HBM3", algorithm="grpo", note="a | note")
    imported(root, told=said)
    return root


def the_import(root: Path) -> Path:
    (found,) = root.glob("imported-*")
    return found


OLDER = Path(__file__).resolve().parents[1] / "bundle/older"
GIVEN = ("--from", "verl", "--model", "Qwen/Qwen3-8B", "--devices", 8)


def test_a_log_becomes_a_folder_that_says_what_it_is(log: Path, tmp_path: Path) -> None:
    done = suite("import", log, *GIVEN, "--runs", tmp_path / "runs")
    assert done.exit_code == 0, done.stderr
    assert f"3 steps of 10.0 s, {MARK}" in done.stdout and "1.60 samples/s, 640 tokens/s" in done.stdout
    folder = the_import(tmp_path / "runs")
    assert (folder / "source.log").read_bytes() == log.read_bytes()
    for file, name in (("import.json", "import"), ("record.json", "imported")):
        jsonschema.Draft202012Validator(schema(name)).validate(json.loads((folder / file).read_text()))
    assert "imported with the same words before" in refused("import", log, *GIVEN, "--runs", tmp_path / "runs")
    assert suite("import", log, *GIVEN, "--note", "b", "--runs", tmp_path / "runs").exit_code == 0, "other words"
    assert len(list((tmp_path / "runs").glob("imported-*"))) == 2


@pytest.mark.parametrize("name", ["skyrl", "areal"])
def test_what_is_imported_alone_is_not_started_and_its_bundles_are_read(name: str, tmp_path: Path) -> None:
    line = refused("run", "--backend", name, "--size", "1M", "--runs", tmp_path)
    assert f"`suite import LOG --from {name}` takes over its own log" in line
    (bundle,) = OLDER.glob(f"{name}-*")
    assert suite("verify", bundle).exit_code == 0
    shown = suite("report", bundle)
    assert name in shown.stdout and "1 of 1" in shown.stdout and "invalid" not in shown.stdout
    assert f"({name}): seconds and counts are those of the trainer's own log" in shown.stderr
    assert f"{name} is experimental (never run)" in shown.stderr


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--devices", 0), "--devices"),
        (("--model", "a\nb"), "one line of printable text"),
        (("--prompt-tokens", 7), "train.log: --prompt-tokens 7 is not what the log tells, which is 100"),
    ],
)
def test_what_cannot_be_imported_is_one_line_and_nothing_is_written(more, problem, log, tmp_path):
    done = suite("import", log, *GIVEN, *more, "--runs", tmp_path / "runs")
    assert done.exit_code == 2
    assert problem in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists() or list((tmp_path / "runs").iterdir()) == []


def test_a_pipe_is_no_log_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    assert refused("import", tmp_path / "log", *GIVEN, "--runs", tmp_path / "runs")


def test_a_report_shows_it_apart_and_ranks_nothing_with_it_and_compare_does_not_take_it(both, tmp_path):
    imported(tmp_path / "other" / "runs")
    assert "what was imported is not compared" in refused("compare", both, tmp_path / "other" / "runs")
    with_it = told("report", both)
    the_import(both).rename(tmp_path / "elsewhere")
    measured = told("report", both)
    assert [row["record"]["mark"] for row in with_it["imported"]] == [MARK] and measured["imported"] == []
    for part in ("ranking", "beside", "scaling", "summary", "runs", "conventions"):
        assert with_it[part] == measured[part], part
    assert len(with_it["rows"]) == len(measured["rows"])


@pytest.mark.slow
def test_the_mark_is_in_the_terminal_the_markdown_and_the_page(both: Path, tmp_path: Path) -> None:
    assert MARK in suite("report", both, "-o", tmp_path / "report.md", "--html", tmp_path / "report.html").stdout
    text = (tmp_path / "report.md").read_text()
    part = text.partition("## Imported, not measured here")[2].partition("\n## ")[0]
    assert f"each {MARK}" in part and "Qwen/Qwen3-8B" in part and "640" in part and r"a \| note" in part
    assert "Imported, not measured here" in (tmp_path / "report.html").read_text()


def test_verify_derives_it_again(both: Path) -> None:
    folder = the_import(both)
    done = suite("verify", folder)
    assert done.exit_code == 0 and f"equal ({MARK})" in done.stdout, done.output
    record = json.loads((folder / "record.json").read_text())
    record["throughput"]["tokens_per_second"] = 9999.0
    (folder / "record.json").write_text(json.dumps(record))
    done = suite("verify", both)
    assert done.exit_code == 3 and "throughput.tokens_per_second: stored 9999.0, derived 640.0" in done.stdout


def test_a_log_that_was_changed_is_damage(both: Path) -> None:
    folder = the_import(both)
    log = folder / "source.log"
    log.write_text(log.read_text().replace("timing_s/step:10.0", "timing_s/step:5.0"))
    checked, done = suite("verify", both), suite("report", both)
    assert checked.exit_code == 2 and "is not the log that was imported" in checked.stdout
    assert "left out, damaged" in done.stderr and MARK not in done.stdout


def test_export_has_a_table_of_it_and_says_so_in_every_other(both: Path, tmp_path: Path) -> None:
    done = suite("export", both, "-o", tmp_path / "runs.csv")
    assert "3 runs" in done.stdout and f"1 row {MARK}: not among these, but in --table imported" in done.stderr
    assert MARK not in (tmp_path / "runs.csv").read_text()
    done = suite("export", both, "-o", tmp_path / "imported.csv", "--table", "imported")
    assert f"1 row, {MARK}" in done.stdout
    (row,) = csv.DictReader((tmp_path / "imported.csv").open())
    assert row["mark"] == MARK and float(row["tokens_per_second"]) == pytest.approx(640)
    assert row["samples_from"] == "computed from the log" and row["algorithm"] == "grpo"
    suite("export", both, "-o", tmp_path / "imported.prom", "--table", "imported")
    samples = [line for line in (tmp_path / "imported.prom").read_text().splitlines() if not line.startswith("#")]
    assert samples and all(f'mark="{MARK}"' in line for line in samples)


def test_runs_lists_it_as_imported_and_it_can_be_chosen_tagged_and_removed(both: Path) -> None:
    def listed(*arguments: object) -> list[dict]:
        return told("runs", "list", both, *arguments)["runs"]

    (row,) = api.load(both).rows("imported")
    assert row["mark"] == MARK and row["model"] == "Qwen/Qwen3-8B"
    (one,) = listed("--status", "imported")
    assert one["state"] == "imported" and one["mark"] == MARK and one["valid"] is False
    assert one["backend"] == "verl" and one["samples_per_second"] == pytest.approx(1.6)
    assert len(listed()) == 4 and len(listed("--valid")) == 3
    assert suite("runs", "tag", one["run"], "--add", "theirs", "--runs", both).exit_code == 0
    assert [run["run"] for run in listed("--tag", "theirs")] == [one["run"]]
    assert suite("runs", "remove", one["run"], "--yes", "--runs", both).exit_code == 0
    assert len(listed()) == 3


def test_it_travels_in_an_archive_without_identity(tmp_path: Path) -> None:
    prefix = "\x1b[36m(TaskRunner pid=7, ip=10.1.2.3)\x1b[0m "
    text = "host: gpu17.hpc.example.edu\n/home/" + "alice/verl/train.py\n" + verl_console(1200, prefix)
    make_bundle(tmp_path / "runs", synthetic_manifest())
    imported(tmp_path / "runs", text)
    archive = tmp_path / "results.suite.zip"
    assert "2 runs" in suite("pack", tmp_path / "runs", "-o", archive).stdout
    assert f"equal ({MARK})" in suite("verify", archive).stdout
    assert suite("unpack", archive, "-o", tmp_path / "out").exit_code == 0
    log = (the_import(tmp_path / "out" / "runs") / "source.log").read_text()
    assert "alice" not in log and "gpu17" not in log and "10.1.2.3" not in log
    record = json.loads((the_import(tmp_path / "out" / "runs") / "record.json").read_text())
    assert record["log"]["sha256_before"] and record["throughput"]["tokens_per_second"] == pytest.approx(640)
    assert MARK in suite("report", archive).stdout
    assert told("report", archive)["imported"][0]["path"].startswith(str(archive))


def test_a_newer_import_is_refused_with_the_reason(both: Path) -> None:
    file = the_import(both) / "import.json"
    file.write_text(file.read_text().replace("suite/import/1", "suite/import/2"))
    done = suite("verify", both)
    assert done.exit_code == 2 and "install a newer one" in done.stdout
