"""The files: they read back as what was written, are the same each time, and do nothing to who opens them."""

import csv
import io
import json
import math
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from suite.export.columns import LONGEST_TEXT
from suite.export.export import export_file, write
from suite.export.formats import csv as csv_format
from suite.export.formats import jsonl, openmetrics
from suite.export.tables import TABLES, Row, rows_of
from suite.report.formatting.escape import visible
from suite.report.reading import read_entries
from suite.spec.base import UsageError
from tests.export.made import HOSTILE

RUNS = TABLES["runs"]
#: How spreadsheets begin formulas; tabs and line ends never come first, or at all.
FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r", "\n")


@pytest.fixture(scope="module")
def rows(made: Path) -> list[Row]:
    return list(rows_of(RUNS, read_entries([made]).entries))


def rows_in(folder: Path, name: str) -> list[Row]:
    found = read_entries([folder], with_imported=True)
    return list(rows_of(TABLES[name], found.entries, imported=found.imported))


def value_of(kind: str, field: str) -> Any:
    """By the rules of docs/export.md."""
    if not field:
        return None
    if kind == "text":
        return field.removeprefix("'")
    if kind == "texts":
        return json.loads(field)
    if kind == "time":
        return datetime.strptime(field, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    return {"integer": int, "number": float, "boolean": lambda word: {"true": True, "false": False}[word]}[kind](field)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_csv_reads_back_as_the_rows(name: str, made: Path) -> None:
    table = TABLES[name]
    written = rows_in(made, name)
    found = csv.DictReader(io.StringIO("".join(csv_format.lines(table, written)), newline=""))
    kinds = {column.name: column.kind for column in table.columns}
    assert [{key: value_of(kinds[key], field) for key, field in row.items()} for row in found] == written


def test_no_field_of_csv_is_a_formula_and_no_text_is_divided_by_another_separator(rows: list[Row]) -> None:
    text = "".join(csv_format.lines(RUNS, rows))
    for row in csv.reader(io.StringIO(text, newline="")):
        for field in row:
            assert not field.startswith(FORMULAS) or math.isfinite(float(field)), field
    for line in text.splitlines()[1:]:
        for row in csv.reader([line], delimiter=";"):  # what a locale with semicolons makes of it
            assert not [field for field in row if field.startswith(FORMULAS)]
    assert "HYPERLINK" in text


@settings(max_examples=40)
@given(some.text())
def test_any_text_is_guarded_and_comes_back(text: str) -> None:
    kept = visible(text, LONGEST_TEXT)
    (row,) = csv.reader(io.StringIO(csv_format._field(kept), newline="")) if kept else ([""],)
    assert row[0].removeprefix("'") == kept
    assert not row[0].startswith(FORMULAS)


def test_json_lines_are_rows_in_the_order_of_the_columns(rows: list[Row]) -> None:
    found = [json.loads(line) for line in jsonl.lines(RUNS, rows)]
    assert found == [jsonl.plain(row) for row in rows]
    assert tuple(found[0]) == RUNS.names


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".prom"])
def test_the_same_results_give_the_same_bytes(suffix: str, made: Path, tmp_path: Path) -> None:
    entries = read_entries([made]).entries
    files = [tmp_path / f"{number}{suffix}" for number in (1, 2)]
    for file, order in zip(files, (entries, entries[::-1]), strict=True):
        write(file, RUNS, rows_of(RUNS, order))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == files


def test_openmetrics_is_what_its_own_parser_takes(made: Path) -> None:
    parser = pytest.importorskip(
        "prometheus_client.openmetrics.parser",
        reason="OpenMetrics NOT CHECKED: no prometheus-client in this interpreter",
    )

    def families(name: str) -> dict[str, Any]:
        text = "".join(openmetrics.lines(TABLES[name], rows_in(made, name)))
        return {family.name: family for family in parser.text_string_to_metric_families(text)}

    figure = {"runs": "samples_per_second", "imported": "step_seconds"}
    for name, table in TABLES.items():
        column, key = figure.get(name, "seconds"), "id" if name == "imported" else "run"
        figures = families(name)[f"suite_{table.noun}_{column}"]
        known = [(row[key], row[column]) for row in rows_in(made, name) if row[column] is not None]
        assert [(sample.labels[key], sample.value) for sample in figures.samples] == known
    states = families("runs")["suite_run_status"]
    assert states.type == "stateset"
    is_on = [sample.labels["suite_run_status"] for sample in states.samples if sample.value == 1]
    assert is_on == [row["status"] for row in rows_in(made, "runs")]
    assert "failed" in is_on and "interrupted" in is_on


def test_openmetrics_ends_as_it_must_without_any_row() -> None:
    assert list(openmetrics.lines(RUNS, [])) == ["# EOF\n"]


def test_parquet_has_the_rows_their_types_and_what_they_mean(made: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet NOT CHECKED: no pyarrow in this interpreter")
    files = [tmp_path / "first.parquet", tmp_path / "again.parquet"]
    for name, table in TABLES.items():
        rows = rows_in(made, name)
        for file in files:
            write(file, table, rows)
        assert files[0].read_bytes() == files[1].read_bytes()
        found = parquet.read_table(files[0])
        assert found.to_pylist() == rows
        assert found.schema.metadata[b"schema"] == b"suite/export/1"
        for column in table.columns:
            assert found.schema.field(column.name).metadata[b"description"] == column.meaning.encode()


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        export_file([tmp_path], tmp_path / "folder.csv", "runs")


def test_a_hostile_text_is_in_no_format_as_it_was(rows: list[Row]) -> None:
    for format_ in (csv_format, jsonl, openmetrics):
        text = "".join(format_.lines(RUNS, rows))
        assert not any(char in text for char in "\x1b\u202e\r\t") and HOSTILE not in text
