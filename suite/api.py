"""Results in Python: runs, phases and iterations as data frames, and two groups of runs against each other.

    from suite import api

    runs = api.load("results")
    frame = runs.to_pandas()

Figures are those of ``suite report`` and ``suite export``, from the same code; the columns are in docs/export.md, what
can be done with them in docs/python.md. pandas and polars come with the extra ``data``; without them ``rows`` gives
plain dictionaries. What a user can get wrong raises ``api.UsageError``, a ``ValueError`` with one clear line.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from suite.spec.base import UsageError

if TYPE_CHECKING:
    import pandas
    import polars

    from suite.bundle.imported.record import ImportedRow
    from suite.bundle.record import Record
    from suite.export.columns import Column
    from suite.export.tables import Row
    from suite.report.facts.entry import Entry
    from suite.report.facts.ranking import RankedRow
    from suite.stats.intervals import Interval

__all__ = ["Comparison", "PhaseComparison", "Runs", "UsageError", "columns", "compare", "load"]

TableName = Literal["runs", "phases", "iterations", "imported"]
Verdict = Literal["faster", "slower", "not distinguishable", "too few runs"]


def load(*folders: str | os.PathLike[str]) -> "Runs":
    """The runs of results folders, single bundles, or files of ``suite pack``, each run once.

    Records are derived from what the runs wrote, as for a report, and kept (docs/contracts.md). What could not be read
    is left out and told by ``warnings``. Raises UsageError where there is no run.
    """
    from suite.bundle.tags import tags_by_path
    from suite.report.reading import read_entries

    if not folders:
        raise UsageError("load takes the folder of some results, or several")
    found = read_entries([Path(folder) for folder in folders], with_imported=True)
    tags, problems = tags_by_path(map(Path, found.paths()))
    entries = tuple(sorted(found.entries, key=lambda entry: (entry.record.run.id, entry.path)))
    return Runs(entries, tags, (*found.warnings(), *problems), found.imported)


def columns(table: TableName = "runs") -> "tuple[Column, ...]":
    """Name, kind, unit and meaning of each column of a table."""
    from suite.export.tables import find_table

    return find_table(table).columns


@dataclass(frozen=True, repr=False)
class Runs:
    """Some runs, by run id. ``warnings``: what was left out when they were read, or must be known, a line each.

    Other tools' logs that were imported beside them are in the table ``imported`` alone; they are no runs, and are
    neither counted nor compared.
    """

    _entries: "tuple[Entry, ...]"
    _tags: dict[str, tuple[str, ...]]
    warnings: tuple[str, ...] = ()
    _imported: "tuple[ImportedRow, ...]" = ()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> "Iterator[Row]":
        """A row of the runs' table for each."""
        return iter(self.rows())

    def __repr__(self) -> str:
        return f"<{len(self)} runs>"

    @property
    def records(self) -> "tuple[Record, ...]":
        """The whole record of each run, as docs/contracts.md has it."""
        return tuple(entry.record for entry in self._entries)

    def rows(self, table: TableName = "runs") -> "list[Row]":
        """One dictionary a row; times are datetimes in UTC, lists of texts are lists, null is None."""
        from suite.export.tables import find_table, rows_of

        return list(rows_of(find_table(table), self._entries, self._tags, self._imported))

    def to_pandas(self, table: TableName = "runs") -> "pandas.DataFrame":
        """A data frame with the columns of a table. Raises UsageError where pandas is not installed."""
        from suite.export.frames import pandas_frame

        return pandas_frame(table, self.rows(table))

    def to_polars(self, table: TableName = "runs") -> "polars.DataFrame":
        """A data frame with the columns of a table. Raises UsageError where polars is not installed."""
        from suite.export.frames import polars_frame

        return polars_frame(table, self.rows(table))

    def where(self, **facts: Any) -> "Runs":
        """The runs that have these values in the runs' table: ``where(size="1M", ranks=[1, 2], status="ok")``.

        Of several values any will do; of ``tags`` a run must have all. Raises UsageError for what is no column.
        """
        from suite.export.tables import TABLES
        from suite.spec.names import nearest

        known = {column.name: column for column in TABLES["runs"].columns}
        for name in facts:
            if name not in known:
                raise UsageError(f"the runs have no column {name!r}{nearest(name, known)}")
        wanted = [(known[name], _several(value)) for name, value in facts.items()]
        kept = []
        for entry in self._entries:
            tags = list(self._tags.get(entry.path, ()))
            if all(_fits(tags if column.name == "tags" else column.value(entry), one) for column, one in wanted):
                kept.append(entry)
        return replace(self, _entries=tuple(kept))


@dataclass(frozen=True)
class PhaseComparison:
    """A phase, or phases together, of two groups: as ``Comparison``; null where it could not be tested."""

    name: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str | None


@dataclass(frozen=True)
class Comparison:
    """The rate of the second group over that of the first, with its 95 % interval: above 1 the second is faster.

    ``low`` and ``high`` are null where a group has fewer than two runs. ``runs``: how many of each group count.
    ``method``: by which of the suite's comparisons.
    """

    before: str
    after: str
    runs: tuple[int, int]
    ratio: float
    low: float | None
    high: float | None
    verdict: str
    phases: tuple[PhaseComparison, ...]
    method: Literal["suite compare", "suite report"]

    def __str__(self) -> str:
        bounds = "" if self.low is None or self.high is None else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.after} over {self.before}: {self.ratio:.4g}{bounds}, {self.verdict}"


def compare(before: Runs, after: Runs, with_suspect: bool = False) -> Comparison:
    """Two groups of runs, each of which is one row of a report: repeats of one configuration.

    The same backend and layout on both sides is compared as ``suite compare`` does (versions and machines may differ);
    anything else as ``suite report`` ranks these runs, which takes equal work under an equal setting on the same kind
    of machine. ``with_suspect``: of the latter, count runs that something disturbed. Raises UsageError for groups that
    cannot be compared, with the reason.
    """
    from suite.report.comparing.pairing import measured_rows

    for name, group in (("first", before), ("second", after)):
        if not len(group):
            raise UsageError(f"the {name} group has no run")
    if {entry.path for entry in before._entries} & {entry.path for entry in after._entries}:
        raise UsageError("a run is in both groups")
    sides = [measured_rows(group._entries) for group in (before, after)]
    for name, rows in zip(("first", "second"), sides, strict=True):
        if len(rows) > 1:
            several = ", ".join(sorted({row.name for row in rows})[:3])
            raise UsageError(
                f"the {name} group is of {len(rows)} rows, such as {several}: choose the runs of one with where()"
            )
    ways = [(side[0].row.backend, side[0].row.layout, side[0].row.setting.track) for side in sides]
    names = (sides[0][0].name, sides[1][0].name)
    return _compared(before, after, names) if ways[0] == ways[1] else _ranked(before, after, names, with_suspect)


def _compared(before: Runs, after: Runs, names: tuple[str, str]) -> Comparison:
    from suite.report.compare import compare_entries

    result = compare_entries(before._entries, after._entries)
    if len(result.rows) != 1:
        why = "; ".join(one.detail for one in result.unjudged if one.detail)
        raise UsageError(f"{names[0]} and {names[1]} cannot be compared{f': {why}' if why else ''}")
    (row,) = result.rows
    phases = tuple(PhaseComparison(one.name, one.ratio, one.low, one.high, one.verdict) for one in row.phases)
    runs = (row.runs_before, row.runs_after)
    return Comparison(*names, runs, row.ratio, row.low, row.high, row.verdict, phases, "suite compare")


def _ranked(before: Runs, after: Runs, names: tuple[str, str], with_suspect: bool) -> Comparison:
    from suite.report.facts.model import build

    model = build([*before._entries, *after._entries], with_suspect=with_suspect)
    for group in model.ranking.groups:
        if len(group.places) == 2:
            sides = {"before": before, "after": after}
            placed = {side: _place_of(group.places, runs) for side, runs in sides.items()}
            _, other = group.places
            is_after = placed["after"] is other
            phases = tuple(
                PhaseComparison(one.name, *_bounds(one.ratio, is_after), _verdict(one.verdict, is_after))
                for one in other.by_phase
            )
            verdict = _verdict(other.verdict, is_after)
            assert verdict is not None, "a whole iteration has a verdict"
            runs = (len(placed["before"].row.measured), len(placed["after"].row.measured))
            ratio, low, high = _bounds(other.ratio, is_after)
            return Comparison(*names, runs, ratio, low, high, verdict, phases, "suite report")
    raise UsageError(f"{names[0]} and {names[1]} cannot be compared: {_why_apart(model.rows, with_suspect)}")


def _place_of(places: "Sequence[RankedRow]", runs: Runs) -> "RankedRow":
    ids = {entry.record.run.id for entry in runs._entries}
    return next(place for place in places if ids >= {run.record.run.id for run in place.row.entries})


def _why_apart(rows: Sequence[Any], with_suspect: bool) -> str:
    """Why two rows are not in one group of a ranking."""
    for row in rows:
        if not row.measured:
            return f"{row.backend} has no run with a rate ({row.without_rate})"
        if not row.is_ranked and not with_suspect:
            return f"all runs of {row.backend} are suspect: with_suspect=True compares them all the same"
    first, second = rows[0], rows[-1]
    for what in ("ranks", "work_hash", "lengths_hash", "samples_per_iteration"):
        if getattr(first, what) != getattr(second, what):
            return f"their {what.replace('_', ' ')} differs, so they do other work"
    if first.manifest.measure.seed != second.manifest.measure.seed:
        return "their seed differs"
    settings = vars(first.setting), vars(second.setting)
    differing = [name for name in settings[0] if settings[0][name] != settings[1][name]]
    return f"their {', '.join(differing)} differs" if differing else "what they did differs, as their trainers count it"


def _bounds(ratio: "Interval", is_after: bool) -> tuple[float, float | None, float | None]:
    """Of the second group over the first, where it is given of that over the best: turned unless it is the second."""
    if is_after:
        return ratio.value, ratio.low, ratio.high
    low = None if ratio.high is None else 1 / ratio.high
    return 1 / ratio.value, low, None if ratio.low is None else 1 / ratio.low


def _verdict(verdict: str | None, is_after: bool) -> str | None:
    turned = {"faster": "slower", "slower": "faster"}
    return verdict if is_after or verdict is None else turned.get(verdict, verdict)


def _several(value: Any) -> Collection[Any]:
    return value if isinstance(value, (list, tuple, set, frozenset, range)) else (value,)


def _fits(value: Any, wanted: Collection[Any]) -> bool:
    return set(wanted) <= set(value) if isinstance(value, list) else value in wanted
