"""The tables: which rows there are, and that their figures are the record's and the report's."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from suite.export.formats.jsonl import plain
from suite.export.schema import FILE, documented, schema_text
from suite.export.tables import TABLES, rows_of
from suite.report.facts.model import build
from suite.report.reading import read_entries
from suite.spec.phases import ALL_NAMES
from tests.export.made import results

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads(FILE.read_text())
CPU = ROOT / "docs" / "results" / "cpu" / "runs"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results(tmp_path_factory.mktemp("results"))


def test_the_published_schema_is_that_of_the_columns() -> None:
    assert FILE.read_text(encoding="utf-8") == schema_text(), "python -m suite.export.schema writes it"


#: What columns of this version are called, table by table: others may come behind them, none goes or is renamed.
NAMES = json.loads((Path(__file__).with_name("columns-1.json")).read_text())


@pytest.mark.parametrize("name", sorted(TABLES))
def test_columns_keep_their_names_types_and_order(name: str) -> None:
    columns = [[column.name, column.kind, column.unit] for column in TABLES[name].columns]
    assert columns == NAMES[name]
    assert len({column.name for column in TABLES[name].columns}) == len(columns)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_page_has_every_column_with_its_meaning(name: str) -> None:
    page = (ROOT / "docs" / "export.md").read_text()
    assert documented(TABLES[name]) in page, "python -m suite.export.schema prints the tables"


@pytest.mark.parametrize("name", sorted(TABLES))
def test_rows_fit_the_published_schema(name: str, made: Path) -> None:
    validator = jsonschema.Draft202012Validator({**SCHEMA["$defs"][name], "$defs": SCHEMA["$defs"]})
    found = read_entries([made], with_imported=True)
    rows = list(rows_of(TABLES[name], found.entries, imported=found.imported))
    assert rows
    for row in rows:
        validator.validate(plain(row))
        assert tuple(row) == TABLES[name].names


def test_the_schema_refuses_a_row_with_another_column_or_without_one(made: Path) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    row = plain(next(rows_of(TABLES["runs"], read_entries([made]).entries)))
    assert validator.is_valid(row)
    assert not validator.is_valid({**row, "more": 1})
    assert not validator.is_valid({name: value for name, value in row.items() if name != "run"})


def test_failed_interrupted_and_suspect_runs_are_rows_with_their_reasons(made: Path) -> None:
    rows = {
        row["run"][-2:]: row
        for row in rows_of(TABLES["runs"], read_entries([made]).entries)
        if row["ranks"] == 1 and row["backend"] == "deepspeed"
    }
    assert rows["r1"]["status"] == "failed" and rows["r1"]["failure_kind"] == "oom_device"
    assert rows["r1"]["failure_evidence"] == ["=1+1", "CUDA out of memory"]
    assert rows["r1"]["samples_per_second"] is None and rows["r1"]["iterations_completed"] == 1
    assert rows["r2"]["status"] == "interrupted" and rows["r2"]["iterations_completed"] == 0
    cpu = [row for row in rows_of(TABLES["runs"], read_entries([CPU]).entries) if row["validity"] == "suspect"]
    assert cpu and all(row["validity_reasons"] for row in cpu)


def test_what_is_of_another_type_than_its_column_is_null_and_text_is_one_harmless_line(made: Path) -> None:
    row = next(row for row in rows_of(TABLES["runs"], read_entries([made]).entries) if row["python_version"])
    hostile = next(
        row for row in rows_of(TABLES["runs"], read_entries([made]).entries) if row["python_version"] == "@SUM(A1)"
    )
    assert row["run"] and hostile["kernel_version"] is None and hostile["cpu_cores"] is None
    assert hostile["cpu_model"].isprintable() and "\u202e" not in hostile["cpu_model"]


def test_figures_are_those_of_the_report_to_the_last_digit() -> None:
    entries = read_entries([CPU]).entries
    rows = {row["path"]: row for row in rows_of(TABLES["runs"], entries)}
    assert len(rows) == len(entries) > 40
    for entry in entries:
        (of_report,) = build([entry]).rows
        row = rows[entry.path]
        assert of_report.samples_per_second is not None
        rate = of_report.samples_per_second
        assert row["samples_per_second"] == entry.record.throughput.samples_per_second.value
        assert row["samples_per_second"] == pytest.approx(rate.value, rel=1e-12)
        assert row["samples_per_second_low"] == pytest.approx(rate.low, rel=1e-12)
        assert row["iteration_seconds"] == of_report.iteration_seconds
        assert row["memory_efficiency"] == of_report.memory.efficiency
        assert row["mfu"] == of_report.mfu


def test_phases_of_a_run_are_those_of_its_record_and_of_the_report() -> None:
    entries = read_entries([CPU]).entries[:6]
    rows = list(rows_of(TABLES["phases"], entries))
    for entry in entries:
        own = [row for row in rows if row["path"] == entry.path]
        (of_report,) = build([entry]).rows
        assert [row["phase"] for row in own] == [phase.name for phase in of_report.phases]
        assert [row["phase"] for row in own] == [name for name in ALL_NAMES if getattr(entry.record.phases, name)]
        for row, phase in zip(own, of_report.phases, strict=True):
            assert row["seconds"] == phase.seconds
            assert (row["seconds_low"], row["seconds_high"]) == (phase.low, phase.high)


def test_iterations_that_are_counted_make_the_mean_of_the_run(made: Path) -> None:
    entries = read_entries([made]).entries
    runs = {row["path"]: row for row in rows_of(TABLES["runs"], entries)}
    rows = list(rows_of(TABLES["iterations"], entries))
    assert {row["path"] for row in rows} == {path for path, run in runs.items() if run["iterations_completed"]}
    for path, run in runs.items():
        own = [row for row in rows if row["path"] == path]
        assert [row["iteration"] for row in own] == list(range(run["iterations_completed"]))
        counted = [row["seconds"] for row in own if row["counted"]]
        assert len(counted) == run["iterations_counted"]
        if counted:
            assert sum(counted) / len(counted) == run["iteration_seconds"]


def test_rows_come_in_one_order_whatever_the_order_of_the_runs(made: Path) -> None:
    entries = read_entries([made]).entries
    rows = list(rows_of(TABLES["runs"], entries))
    assert rows == list(rows_of(TABLES["runs"], entries[::-1]))
    assert [row["run"] for row in rows] == sorted(row["run"] for row in rows)


def test_tags_are_in_the_row_of_their_run(made: Path) -> None:
    entries = read_entries([made]).entries
    tags = {entries[0].path: ("a", "b")}
    rows = {row["path"]: row["tags"] for row in rows_of(TABLES["runs"], entries, tags)}
    assert rows[entries[0].path] == ["a", "b"] and rows[entries[1].path] == []
