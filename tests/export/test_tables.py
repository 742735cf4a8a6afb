"""The tables: which rows there are, and that their figures are the record's and the report's."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from msgspec import structs

from suite.bundle.parts import Validity
from suite.export.formats.jsonl import plain
from suite.export.schema import schema
from suite.export.tables import TABLES, rows_of
from suite.report.facts.model import build
from suite.report.reading import read_entries
from suite.spec.phases import ALL_NAMES

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = schema("export")
CPU = ROOT / "docs" / "results" / "cpu" / "runs"


#: What columns of this version are called, table by table: others may come behind them, none goes or is renamed.
NAMES = json.loads((Path(__file__).with_name("columns-1.json")).read_text())


@pytest.mark.parametrize("name", sorted(TABLES))
def test_columns_keep_their_names_types_and_order_and_are_explained(name: str) -> None:
    columns = [[column.name, column.kind, column.unit] for column in TABLES[name].columns]
    assert columns == NAMES[name]
    assert len({column.name for column in TABLES[name].columns}) == len(columns)
    assert all(column.meaning for column in TABLES[name].columns)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_rows_fit_the_published_schema(name: str, made: Path) -> None:
    validator = jsonschema.Draft202012Validator({**SCHEMA["$defs"][name], "$defs": SCHEMA["$defs"]})
    found = read_entries([made], with_imported=True)
    rows = list(rows_of(TABLES[name], found.entries, imported=found.imported))
    assert rows
    for row in rows:
        validator.validate(plain(row))
        assert tuple(row) == TABLES[name].names


def test_failed_interrupted_and_hostile_runs_are_rows_with_what_fits_their_columns(made: Path) -> None:
    entries = read_entries([made]).entries
    rows = [row for row in rows_of(TABLES["runs"], entries) if (row["ranks"], row["backend"]) == (1, "deepspeed")]
    failed, interrupted, hostile = sorted(rows, key=lambda row: str(row["run"])[-2:])
    assert (failed["status"], failed["failure_kind"]) == ("failed", "oom_device")
    assert failed["failure_evidence"] == ["=1+1", "CUDA out of memory"]
    assert failed["samples_per_second"] is None and failed["iterations_completed"] == 1
    assert (interrupted["status"], interrupted["iterations_completed"]) == ("interrupted", 0)
    assert hostile["python_version"] == "@SUM(A1)" and hostile["cpu_model"].isprintable()
    assert hostile["kernel_version"] is None and hostile["cpu_cores"] is None, "of another type than the column"


@pytest.mark.slow
def test_figures_are_those_of_the_report_to_the_last_digit() -> None:
    entries = read_entries([CPU]).entries
    rows = {row["path"]: row for row in rows_of(TABLES["runs"], entries)}
    phases = list(rows_of(TABLES["phases"], entries))
    assert len(rows) == len(entries) == len([*CPU.iterdir()]) > 0
    for entry in entries:
        (of_report,) = build([entry]).rows
        row, rate = rows[entry.path], of_report.samples_per_second
        own_rate = entry.record.throughput.samples_per_second
        assert rate is not None and rate.value == pytest.approx(own_rate.value, rel=1e-12)
        bounds = (row["samples_per_second"], row["samples_per_second_low"], row["samples_per_second_high"])
        assert bounds == (own_rate.value, own_rate.low, own_rate.high)
        told = (row["iteration_seconds"], row["memory_efficiency"], row["mfu"])
        assert told == (of_report.iteration_seconds, of_report.memory.efficiency, of_report.utilisation["mfu"])
        own = [each for each in phases if each["path"] == entry.path]
        assert [each["phase"] for each in own] == [name for name in ALL_NAMES if getattr(entry.record.phases, name)]
        seconds = [(phase.name, phase.seconds) for phase in of_report.phases]
        assert [(each["phase"], each["seconds"]) for each in own] == seconds


def test_a_suspect_run_has_its_reasons_beside_it(made: Path) -> None:
    entry = read_entries([made]).entries[0]
    validity = Validity(status="suspect", reasons=("others used its CPUs",))
    doubted = replace(entry, record=structs.replace(entry.record, validity=validity))
    (row,) = rows_of(TABLES["runs"], [doubted])
    assert (row["validity"], row["validity_reasons"]) == ("suspect", ["others used its CPUs"])


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
