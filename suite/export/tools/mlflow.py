"""MLflow: its store in files, with one experiment, whose runs are the suite's.

MLflow keeps that store as it is and would have people use a database, for which `mlflow migrate-filestore` makes one of
it; newer versions open one only where that is allowed, as it is here for as long as it is written.
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from suite.export.tools.given import Given, handing
from suite.spec.optional import required

EXTRA = "mlflow"
EXPERIMENT = "suite"
_STATUSES = {"ok": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
#: What MLflow takes at one time, and of one value.
_BATCH, _LONGEST = 1000, 5000


def write(folder: Path, runs: Iterable[Given]) -> None:
    """Raises OSError, and UsageError for what MLflow refuses."""
    tracking, entities = required("mlflow.tracking", EXTRA), required("mlflow.entities", EXTRA)
    refused = required("mlflow.exceptions", EXTRA).MlflowException
    with handing(EXTRA, refused, MLFLOW_ALLOW_FILE_STORE="true"):
        client = tracking.MlflowClient(tracking_uri=folder.absolute().as_uri())
        experiment = client.create_experiment(EXPERIMENT)
        for run in runs:
            _log(client, entities, experiment, run)


def _log(client: Any, entities: Any, experiment: str, run: Given) -> None:
    start, end = _milliseconds(run.row["started"]), _milliseconds(run.row["ended"])
    tags = {f"suite.{name}": text[:_LONGEST] for name, text in run.texts.items()}
    tags |= {f"suite.tag.{tag}": "true" for tag in run.row["tags"]}
    made = client.create_run(experiment, start_time=start, tags=tags, run_name=run.name).info.run_id
    metrics = [entities.Metric(name, value, end, 0) for name, value in run.figures.items()]
    metrics += [entities.Metric("iteration/seconds", each, start, step) for step, each in enumerate(run.iterations)]
    for first in range(0, len(metrics), _BATCH):
        client.log_batch(made, metrics=metrics[first : first + _BATCH])
    client.log_batch(made, params=[entities.Param(name, str(value)) for name, value in run.settings.items()])
    client.set_terminated(made, _STATUSES[run.row["status"]], end_time=end)


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else round(1000 * moment.timestamp())
