"""TensorBoard: a folder of event files, one folder a run, with settings and figures for its table of hyperparameters.

The files are written record by record and named by the run, so that the same results give the same bytes, and no name
of the machine that exports them is in them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from suite.export.tools.given import Given
from suite.spec.optional import required

EXTRA = "tensorboard"
FILE = "events.out.tfevents.0000000000.suite"
_RECORDS = "tensorboard.summary.writer.record_writer"


def write(folder: Path, runs: Iterable[Given]) -> None:
    """Raises OSError."""
    for run in runs:
        place = folder / run.name
        place.mkdir()
        with (place / FILE).open("xb") as file:
            _write(_Log(file), run)


def _write(log: "_Log", run: Given) -> None:
    started, end = run.row["started"], run.row["ended"]
    began = started.timestamp() if started else 0.0
    ended = end.timestamp() if end else began
    log.version(began)
    log.session_start(run, began)
    for step, seconds in enumerate(run.iterations):
        log.scalar("iteration/seconds", seconds, step, began)
    for name, value in run.figures.items():
        log.scalar(name, value, 0, ended)
    log.session_end(run.row["status"] == "ok", ended)


class _Log:
    """One file of events, and what its hyperparameters' plug-in reads, which a library of its own makes only together
    with TensorFlow."""

    def __init__(self, file: Any) -> None:
        self._writer = required(_RECORDS, EXTRA).RecordWriter(file)
        self._event = required("tensorboard.compat.proto.event_pb2", EXTRA).Event
        self._summaries = required("tensorboard.compat.proto.summary_pb2", EXTRA)
        self._data = required("tensorboard.plugins.hparams.plugin_data_pb2", EXTRA)
        self._metadata = required("tensorboard.plugins.hparams.metadata", EXTRA)
        self._api = required("tensorboard.plugins.hparams.api_pb2", EXTRA)

    def version(self, moment: float) -> None:
        self._write(self._event(wall_time=moment, file_version="brain.Event:2"))

    def scalar(self, name: str, value: float, step: int, moment: float) -> None:
        self._value(moment, step, tag=name, simple_value=value)

    def session_start(self, run: Given, moment: float) -> None:
        info = self._data.SessionStartInfo(group_name=run.row["manifest_hash"][:12], start_time_secs=moment)
        for name, value in run.settings.items():
            kind = "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
            setattr(info.hparams[name], f"{kind}_value", value)
        data = self._data.HParamsPluginData(session_start_info=info, version=self._metadata.PLUGIN_DATA_VERSION)
        self._plugin(self._metadata.SESSION_START_INFO_TAG, data, moment)

    def session_end(self, is_ok: bool, moment: float) -> None:
        status = self._api.STATUS_SUCCESS if is_ok else self._api.STATUS_FAILURE
        info = self._data.SessionEndInfo(status=status, end_time_secs=moment)
        data = self._data.HParamsPluginData(session_end_info=info, version=self._metadata.PLUGIN_DATA_VERSION)
        self._plugin(self._metadata.SESSION_END_INFO_TAG, data, moment)

    def _plugin(self, tag: str, data: Any, moment: float) -> None:
        content = data.SerializeToString(deterministic=True)
        plugin = self._summaries.SummaryMetadata.PluginData(plugin_name=self._metadata.PLUGIN_NAME, content=content)
        self._value(moment, 0, tag=tag, metadata=self._summaries.SummaryMetadata(plugin_data=plugin))

    def _value(self, moment: float, step: int, **facts: Any) -> None:
        summary = self._summaries.Summary(value=[self._summaries.Summary.Value(**facts)])
        self._write(self._event(wall_time=moment, step=step, summary=summary))

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString(deterministic=True))
