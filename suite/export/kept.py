"""The table of runs as it is kept beside the records: exporting it reads none of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from suite.bundle.archive.opening import Opened
from suite.bundle.cache.survey import Surveyed
from suite.bundle.cache.table import Derived, View, select
from suite.bundle.files import DamagedBundle
from suite.bundle.store import StillRunning
from suite.export.columns import LONGEST_TEXT
from suite.export.runs import RUN_COLUMNS
from suite.export.tables import Row
from suite.report.facts.entry import Entry
from suite.report.formatting.escape import visible
from suite.report.reading import Checked, Found, checked, read_with

_NAMES = tuple(column.name for column in RUN_COLUMNS)
_TIMES = tuple(column.name for column in RUN_COLUMNS if column.kind == "time")


@dataclass(frozen=True)
class KeptRun:
    """A run's row, column by column, with times as texts. ``path``: of its bundle."""

    path: str
    values: tuple[Any, ...]


def _made(derived: Derived) -> Checked[KeptRun]:
    run = Entry(derived.manifest, derived.record, "", derived.digest)
    return checked(derived, KeptRun("", tuple(column.value(run) for column in RUN_COLUMNS)))


_RUNS = View("export", ("report", "export"), _made, Checked[KeptRun])


def read_runs(paths: Sequence[Path], with_imported: bool) -> Found[KeptRun]:
    """As ``suite.report.reading.read_entries``."""
    return read_with(_look, paths, with_imported)


def _look(bundles: Sequence[Surveyed], places: Opened) -> list[Checked[KeptRun] | StillRunning | DamagedBundle]:
    found = zip(bundles, select(bundles, _RUNS, places.holds), strict=True)
    return [one.at(bundle.path) if isinstance(one, Checked) else one for bundle, one in found]


def rows_of_runs(runs: Sequence[KeptRun], tags: Mapping[str, tuple[str, ...]]) -> Iterator[Row]:
    """As ``suite.export.tables.rows_of`` gives the rows of the table of runs."""
    at = _NAMES.index("run")
    for run in sorted(runs, key=lambda run: (run.values[at], run.path)):
        row = dict(zip(_NAMES, run.values, strict=True))
        times = {name: datetime.fromisoformat(row[name]) for name in _TIMES if row[name] is not None}
        yield row | times | {"path": visible(run.path, LONGEST_TEXT), "tags": list(tags.get(run.path, ()))}
