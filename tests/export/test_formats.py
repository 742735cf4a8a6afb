"""The files: they read back as what was written, are the same each time, and do nothing to who opens them."""

from __future__ import annotations

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
from suite.export.formats import csv as csv_format
from suite.export.formats import jsonl, openmetrics
from suite.export.tables import TABLES, Row, rows_of
from suite.export.writing import write
from suite.report.formatting.escape import visible
from suite.report.reading import read_entries
from suite.spec import optional
from suite.spec.base import UsageError
from tests.export.made import HOSTILE, results

RUNS = TABLES["runs"]
#: How spreadsheets begin formulas; tabs and line ends never come first, or at all.
FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r", "\n")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return list(rows_of(RUNS, read_entries([results(tmp_path_factory.mktemp("results"))]).entries))


def rows_in(folder: Path, name: str) -> list[Row]:
    found = read_entries([folder], with_imported=True)
    return list(rows_of(TABLES[name], found.entries, imported=found.imported))


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


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
def test_csv_reads_back_as_the_rows(name: str, tmp_path: Path) -> None:
    table = TABLES[name]
    made = rows_in(results(tmp_path), name)
    found = parsed("".join(csv_format.lines(table, made)))
    kinds = {column.name: column.kind for column in table.columns}
    assert [{key: value_of(kinds[key], field) for key, field in row.items()} for row in found] == made


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
def test_the_same_results_give_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    folder = results(tmp_path / "runs")
    files = [tmp_path / f"{number}{suffix}" for number in (1, 2)]
    for file in files:
        entries = read_entries([folder]).entries
        write(file, RUNS, rows_of(RUNS, entries[:: 1 if file is files[0] else -1]))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["runs", *(file.name for file in files)])


def test_openmetrics_is_what_its_own_parser_takes(tmp_path: Path) -> None:
    parser = pytest.importorskip(
        "prometheus_client.openmetrics.parser",
        reason="OpenMetrics NOT CHECKED: no prometheus-client in this interpreter",
    )
    figure = {"runs": "samples_per_second", "imported": "step_seconds"}
    for table in TABLES.values():
        made = rows_in(results(tmp_path / table.name), table.name)
        families = {
            family.name: family
            for family in parser.text_string_to_metric_families("".join(openmetrics.lines(table, made)))
        }
        column = figure.get(table.name, "seconds")
        figures = families[f"suite_{table.noun}_{column}"]
        known = [row for row in made if row[column] is not None]
        assert [sample.value for sample in figures.samples] == [row[column] for row in known]
        key = "id" if table.name == "imported" else "run"
        assert [sample.labels[key] for sample in figures.samples] == [row[key] for row in known]
    made = rows_in(tmp_path / "runs", "runs")
    text = "".join(openmetrics.lines(RUNS, made))
    states = {family.name: family for family in parser.text_string_to_metric_families(text)}["suite_run_status"]
    assert states.type == "stateset"
    is_on = [sample.labels["suite_run_status"] for sample in states.samples if sample.value == 1]
    assert is_on == [row["status"] for row in made]
    assert "failed" in is_on and "interrupted" in is_on


def test_openmetrics_ends_as_it_must_without_any_row() -> None:
    assert list(openmetrics.lines(RUNS, [])) == ["# EOF\n"]


def test_parquet_has_the_rows_their_types_and_what_they_mean(tmp_path: Path, rows: list[Row]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet NOT CHECKED: no pyarrow in this interpreter")
    for table in TABLES.values():
        made = rows_in(results(tmp_path / table.name), table.name)
        write(tmp_path / "file.parquet", table, made)
        found = parquet.read_table(tmp_path / "file.parquet")
        assert found.to_pylist() == made
        assert found.schema.metadata[b"schema"] == b"suite/export/1"
        key = {"imported": "id"}.get(table.name, "run")
        meaning = next(column.meaning for column in table.columns if column.name == key)
        assert found.schema.field(key).metadata[b"description"] == meaning.encode()
        first = (tmp_path / "file.parquet").read_bytes()
        write(tmp_path / "file.parquet", table, made)
        assert (tmp_path / "file.parquet").read_bytes() == first


def test_pandas_reads_what_was_written(tmp_path: Path, rows: list[Row]) -> None:
    pandas = pytest.importorskip("pandas", reason="CSV with pandas NOT CHECKED: no pandas in this interpreter")
    write(tmp_path / "runs.csv", RUNS, rows)
    frame = pandas.read_csv(tmp_path / "runs.csv", parse_dates=["started", "ended"])
    assert list(frame.columns) == list(RUNS.names)
    known = [row for row in rows if row["samples_per_second"] is not None]
    # before version 3 it takes float_precision="round_trip" for the last bit
    figures = [row["samples_per_second"] for row in known]
    assert list(frame["samples_per_second"].dropna()) == pytest.approx(figures, rel=1e-15)
    assert list(frame["status"]) == [row["status"] for row in rows]
    assert frame["started"][0] == rows[0]["started"]
    evidence = [json.loads(text) for text in frame["failure_evidence"].dropna()]
    assert ["=1+1", "CUDA out of memory"] in evidence


def test_polars_reads_what_was_written(tmp_path: Path, rows: list[Row]) -> None:
    polars = pytest.importorskip("polars", reason="CSV with polars NOT CHECKED: no polars in this interpreter")
    write(tmp_path / "runs.csv", RUNS, rows)
    frame = polars.read_csv(tmp_path / "runs.csv", infer_schema_length=None)
    assert frame.columns == list(RUNS.names)
    assert frame["samples_per_second"].to_list() == [row["samples_per_second"] for row in rows]
    assert frame["status"].to_list() == [row["status"] for row in rows]


def test_without_the_package_it_is_one_line_that_names_the_extra(
    tmp_path: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(optional, "import_module", missing)
    with pytest.raises(UsageError, match=r"^pyarrow is not installed: pip install 'suite\[data\]' brings it$"):
        write(tmp_path / "new" / "runs.parquet", RUNS, rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [("runs", "names no format"), ("runs.xlsx", "names no format"), ("folder.csv", "is a folder")],
)
def test_a_file_that_cannot_be_written_is_told_by_name(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match=problem):
        write(tmp_path / name, RUNS, [])


def test_a_hostile_text_is_in_no_format_as_it_was(rows: list[Row]) -> None:
    for format_ in (csv_format, jsonl, openmetrics):
        text = "".join(format_.lines(RUNS, rows))
        assert not any(char in text for char in "\x1b\u202e\r\t") and HOSTILE not in text
