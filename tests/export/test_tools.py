"""`suite export` as a user gives it, and what W&B, MLflow and TensorBoard read of it by their own libraries.

None of them is in the locks: where one is not installed its test is skipped, and says so.
"""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from suite.bundle.tags import change_tags
from suite.export import export
from suite.export.export import export_to
from suite.export.tables import TABLES, Row, rows_of
from suite.report.reading import read_entries
from suite.spec import optional
from suite.spec.base import UsageError
from tests.command import refused, suite, told
from tests.synthetic import make_bundle, synthetic_manifest


@pytest.fixture(scope="module")
def rows(made: Path) -> dict[str, Row]:
    return {row["run"]: row for row in rows_of(TABLES["runs"], read_entries([made]).entries)}


@pytest.mark.packages
def test_tensorboard_reads_scalars_and_hyperparameters(made: Path, rows: dict[str, Row], tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard NOT CHECKED: not installed"
    )
    from tensorboard.plugins.hparams import metadata

    export_to("tensorboard", [made], tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(rows)
    for name, row in rows.items():
        found = event_accumulator.EventAccumulator(str(tmp_path / "out" / name)).Reload()
        tags = found.Tags()["scalars"]
        assert ("samples_per_second" in tags) == (row["samples_per_second"] is not None)
        if row["samples_per_second"] is not None:
            (rate,) = found.Scalars("samples_per_second")
            assert rate.value == pytest.approx(row["samples_per_second"], rel=1e-6)
            assert "phase/train/seconds" in tags
        iterations = found.Scalars("iteration/seconds") if "iteration/seconds" in tags else []
        assert [event.step for event in iterations] == list(range(row["iterations_completed"]))
        settings = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        hparams = metadata.parse_session_start_info_plugin_data(settings).hparams
        assert hparams["backend"].string_value == row["backend"] and hparams["ranks"].number_value == row["ranks"]
    export_to("tensorboard", [made], tmp_path / "again")
    files = [
        {path.relative_to(tmp_path / folder): path.read_bytes() for path in (tmp_path / folder).rglob("*.suite")}
        for folder in ("out", "again")
    ]
    assert files[0] == files[1] and len(files[0]) == len(rows)


@pytest.mark.packages
def test_mlflow_reads_runs_metrics_and_parameters(made, rows, tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow NOT CHECKED: not installed")
    export_to("mlflow", [made], tmp_path / "store")
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = tracking.MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    experiment = client.get_experiment_by_name("suite")
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(found) == set(rows)
    for name, row in rows.items():
        run = found[name]
        assert run.info.status == {"ok": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}[row["status"]]
        assert run.data.params["backend"] == row["backend"] and run.data.params["ranks"] == str(row["ranks"])
        assert run.data.metrics.get("samples_per_second") == row["samples_per_second"]
        steps = client.get_metric_history(run.info.run_id, "iteration/seconds") if row["iterations_completed"] else []
        assert sorted(metric.step for metric in steps) == list(range(row["iterations_completed"]))
        assert (run.data.tags.get("suite.failure_kind")) == row["failure_kind"]


def wandb_records(data: bytes) -> Iterator[Any]:
    """What an offline run's file holds: behind a head of 7 bytes the log format of LevelDB, in blocks of 32 KiB, whose
    records have a head of 7 bytes each: checksum, length, and whether whole (1), first, middle or last part.
    """
    from wandb.proto import wandb_internal_pb2

    assert data[:4] == b":W&B"
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


@pytest.mark.packages
def test_wandb_keeps_each_run_offline_with_its_settings_and_figures(made, rows, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="W&B NOT CHECKED: not installed")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    export_to("wandb", [made], tmp_path / "out")  # tests have no network, so that nothing was asked for
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    files = {path.stem.removeprefix("run-"): path for path in (tmp_path / "out").rglob("*.wandb")}
    assert set(files) == set(rows)
    for name, path in files.items():
        records = list(wandb_records(path.read_bytes()))
        kinds = [record.WhichOneof("record_type") for record in records]
        assert kinds.count("history") == rows[name]["iterations_completed"]
        (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"][:1]
        settings = {item.key: item.value_json for item in run.config.update}
        assert settings["backend"] == f'"{rows[name]["backend"]}"'
        figures = {
            item.key or "/".join(item.nested_key): item.value_json
            for record in records
            if record.WhichOneof("record_type") == "summary"
            for item in record.summary.update
        }
        rate = rows[name]["samples_per_second"]
        assert figures.get("samples_per_second") == (None if rate is None else repr(rate))
        codes = [record.exit.exit_code for record in records if record.WhichOneof("record_type") == "exit"]
        assert codes == [0 if rows[name]["status"] == "ok" else 1]


@pytest.mark.parametrize("tool", ["wandb", "mlflow", "tensorboard"])
def test_without_the_tool_it_is_one_line_and_no_folder(tool, made, tmp_path, monkeypatch):
    monkeypatch.setattr(optional, "import_module", Mock(side_effect=ModuleNotFoundError(name=tool)))
    with pytest.raises(UsageError, match=rf"^{tool} is not installed: pip install 'rlhf-suite\[{tool}\]' brings it$"):
        export_to(tool, [made], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_left_alone(made, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "required", Mock())
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        export_to("mlflow", [made], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_json_says_what_was_written(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "out" / "phases.jsonl"
    found = told("export", made, "-o", file, "--table", "phases")
    assert (found["schema"], found["table"], found["runs"]) == ("suite/export/1", "phases", 6)
    assert found["rows"] == len(file.read_text().splitlines()) > 6


def test_tags_are_exported_and_what_is_left_out_is_told(tmp_path: Path) -> None:
    change_tags(make_bundle(tmp_path / "runs", synthetic_manifest()), ["baseline"], [])
    damaged = make_bundle(tmp_path / "runs", synthetic_manifest(repeat=2))
    (damaged / "manifest.json").write_text("{")
    done = suite("export", tmp_path / "runs", "-o", tmp_path / "runs.jsonl")
    assert done.exit_code == 0 and "left out, damaged" in done.stderr and "1 run" in done.stdout
    (row,) = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert json.loads(row)["tags"] == ["baseline"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-o", "runs.txt"], "names no format"),
        (["-o", "runs.csv", "--table", "run"], "did you mean 'runs'"),
        (["-o", "folder", "--to", "excel"], "no tool 'excel'"),
        (["-o", "folder", "--to", "mlflow", "--table", "phases"], "--to writes runs, phases and iterations together"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(arguments, problem, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert problem in refused("export", made, *arguments)
    assert list(tmp_path.iterdir()) == []
