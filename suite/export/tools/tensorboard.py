"""TensorBoard: a folder of event files, one folder a run, with settings and figures for its table of hyperparameters.

The files are written record by record and named by the run, so that the same results give the same bytes, and no name
of the machine that exports them is in them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from suite.export.tools.given import Given
from suite.spec.optional import required

EXTRA = "tensorboard"
FILE = "events.out.tfevents.0000000000.suite"


def write(folder: Path, runs: Iterable[Given]) -> None:
    """Raises OSError."""
    writer = required("tensorboard.summary.writer.record_writer", EXTRA).RecordWriter
    for run in runs:
        place = folder / run.name
        place.mkdir()
        with (place / FILE).open("xb") as file:
            log = writer(file)
            for event in _events(run):
                log.write(event.SerializeToString(deterministic=True))


def _events(run: Given) -> Iterator[Any]:
    """With what the plug-in of hyperparameters reads, which a library makes only together with TensorFlow."""
    make = required("tensorboard.compat.proto.event_pb2", EXTRA).Event
    summaries = required("tensorboard.compat.proto.summary_pb2", EXTRA)
    hparams = required("tensorboard.plugins.hparams.plugin_data_pb2", EXTRA)
    names = required("tensorboard.plugins.hparams.metadata", EXTRA)
    statuses = required("tensorboard.plugins.hparams.api_pb2", EXTRA)

    def value(moment: float, step: int, **facts: Any) -> Any:
        summary = summaries.Summary(value=[summaries.Summary.Value(**facts)])
        return make(wall_time=moment, step=step, summary=summary)

    def session(moment: float, tag: str, **info: Any) -> Any:
        data = hparams.HParamsPluginData(version=names.PLUGIN_DATA_VERSION, **info)
        content = data.SerializeToString(deterministic=True)
        plugin = summaries.SummaryMetadata.PluginData(plugin_name=names.PLUGIN_NAME, content=content)
        return value(moment, 0, tag=tag, metadata=summaries.SummaryMetadata(plugin_data=plugin))

    started, end = run.row["started"], run.row["ended"]
    began = started.timestamp() if started else 0.0
    ended = end.timestamp() if end else began
    first = hparams.SessionStartInfo(group_name=run.row["manifest_hash"][:12], start_time_secs=began)
    for name, setting in run.settings.items():
        kind = "bool" if isinstance(setting, bool) else "string" if isinstance(setting, str) else "number"
        setattr(first.hparams[name], f"{kind}_value", setting)
    status = statuses.STATUS_SUCCESS if run.row["status"] == "ok" else statuses.STATUS_FAILURE
    last = hparams.SessionEndInfo(status=status, end_time_secs=ended)
    yield make(wall_time=began, file_version="brain.Event:2")
    yield session(began, names.SESSION_START_INFO_TAG, session_start_info=first)
    for step, seconds in enumerate(run.iterations):
        yield value(began, step, tag="iteration/seconds", simple_value=seconds)
    for name, figure in run.figures.items():
        yield value(ended, 0, tag=name, simple_value=figure)
    yield session(ended, names.SESSION_END_INFO_TAG, session_end_info=last)
