"""Reading results folders for a report: bundles with their records, what is damaged, and what a reader must know."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, starmap
from pathlib import Path
from typing import Generic, TypeVar

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.survey import Surveyed, survey
from suite.bundle.cache.table import Derived, records_of
from suite.bundle.evidence import digest_if_any, digest_of, digest_of_all
from suite.bundle.findings import FINDINGS, Finding
from suite.bundle.folder import Trace, folder_findings
from suite.bundle.imported.record import ImportedRow
from suite.bundle.imported.store import IMPORT, ImportFolder
from suite.bundle.store import Bundle, DamagedBundle, StillRunning
from suite.bundle.walk import is_trial
from suite.report.facts.entry import Entry, ReportEvidence
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, few
from suite.spec.base import UsageError

#: Bundles of which the same thing is said.
MOST_SHOWN, _REST = 5, "and {{}} more bundles: {} (suite verify --json)"
#: Kinds of what is told beside a finding's name, and the order of all.
DAMAGED, OTHER, RUNNING, ALTERED = "damaged", "", "running", "record.json is not what its events give"
_ORDER = (DAMAGED, OTHER, RUNNING, ALTERED, *FINDINGS)
_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class Caveat:
    """What a reader must know of how the bundle at ``path`` was read; empty: of several. ``kind``: the name of a
    finding, or one of those above. ``leaves_out``: the run is not among those that were read."""

    kind: str
    path: str
    text: str
    leaves_out: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


@dataclass(frozen=True)
class Checked(Generic[_Entry]):
    """A run, with what does not fit within its bundle; ``difference``: of record.json from what its events give."""

    entry: _Entry
    trace: Trace
    findings: tuple[Finding, ...]
    difference: str

    def at(self, path: str) -> "Checked[_Entry]":
        """The same of a bundle at that path, of whose entry it is a field."""
        entry = replace(self.entry, path=path)  # type: ignore[type-var]
        return replace(self, entry=entry, trace=replace(self.trace, path=Path(path)))


#: Of each bundle the run that it holds, or why there is none.
Look = Callable[[Sequence[Surveyed], Opened], Sequence[Checked[_Entry] | StillRunning | DamagedBundle]]


@dataclass(frozen=True)
class Found(Generic[_Entry]):
    """``caveats``: which bundles were left out, and what else does not fit together, by kind."""

    entries: list[_Entry]
    caveats: list[Caveat]
    read_from: ReportEvidence
    imported: tuple[ImportedRow, ...] = ()

    def paths(self) -> list[str]:
        return [entry.path for entry in (*self.entries, *self.imported)]  # type: ignore[attr-defined]

    @property
    def damaged(self) -> list[str]:
        """A line for each bundle that cannot be read."""
        return [str(one) for one in self.caveats if one.kind == DAMAGED]

    def warnings(self) -> list[str]:
        """What a reader needs of it, a line each that a terminal can show."""
        return [visible(line, 400) for line in lines_of(self.caveats)]


def read_entries(paths: Sequence[Path], with_imported: bool = False) -> Found[Entry]:
    """Every readable bundle, once, with the record that its events give. ``paths``: folders, archives of `suite pack`,
    or runs of these. ``with_imported``: other tools' logs are rows too. Raises UsageError when nothing can be reported.
    """
    return read_with(_records, paths, with_imported)


def read_with(look: Look[_Entry], paths: Sequence[Path], with_imported: bool) -> Found[_Entry]:
    """As ``read_entries``, where less than a whole record is looked at; entries have a path."""
    with opened(paths) as places:
        shown = places.shown  # archives are read in a folder that is gone afterwards
        surveyed, marked = survey(places.folders, IMPORT)
        bundles = [bundle for bundle in surveyed if not is_trial(bundle.path)]
        tried = [bundle.path for bundle in surveyed if is_trial(bundle.path)]
        looked = list(zip(bundles, look(bundles, places), strict=True))
        runs = [one for _, one in looked if isinstance(one, Checked)]
        unread = [(bundle.path, one) for bundle, one in looked if not isinstance(one, Checked)]
        imported: list[ImportedRow] = []
        for folder in map(ImportFolder, marked):
            path = folder.path.as_posix()
            try:
                imported.append(ImportedRow(record=folder.derived(), path=shown(path), digest=digest_of(folder)))
            except DamagedBundle as error:
                unread.append((path, error))
        kept, found = _trusted(runs, bundles, places.folders)
        text = f"{counted(len(tried), 'trial')} of a study are no rows: suite tune shows what became of them"
        caveats = [*([Caveat(OTHER, "", text)] if tried else ()), *starmap(left_out, unread), *found]
        caveats.sort(key=lambda caveat: _ORDER.index(caveat.kind))
        caveats = [replace(one, path=shown(one.path), text=shown(one.text)) for one in caveats]
        digests = [row.digest for row in imported] + [one.trace.digest for one in runs]
        damaged = [path for path, why in unread if isinstance(why, DamagedBundle)]
        digests += [digest_if_any(Bundle(Path(path))) for path in (*tried, *damaged)]
        entries = [replace(entry, path=shown(entry.path)) for entry in kept]  # type: ignore
    if not entries and not (imported and with_imported):
        detail = "".join(f"; {line}" for line in islice(lines_of(caveats), 1))
        detail += "; what was imported is not compared" * bool(imported)
        raise UsageError(f"no bundle to report in {', '.join(str(path) for path in paths)}{detail}")
    whole = digest_of_all(filter(None, digests)) if digests and None not in digests else None
    read_from = ReportEvidence(whole, tuple(path.as_posix() for path in paths))
    return Found(entries, caveats, read_from, tuple(imported) if with_imported else ())


def _records(bundles: Sequence[Surveyed], places: Opened) -> list[Checked[Entry] | StillRunning | DamagedBundle]:
    found = zip(bundles, records_of(bundles, places.holds), strict=True)
    return [
        checked(one, Entry(one.manifest, one.record, bundle.path, one.digest)) if isinstance(one, Derived) else one
        for bundle, one in found
    ]


def left_out(path: str, why: StillRunning | DamagedBundle) -> Caveat:
    if isinstance(why, StillRunning):
        return Caveat(RUNNING, path, "left out, because it is still being run", leaves_out=True)
    return Caveat(DAMAGED, path, f"left out, damaged: {why}", leaves_out=True)


def _trusted(
    runs: Sequence[Checked[_Entry]], bundles: Sequence[Surveyed], folders: Iterable[Path]
) -> tuple[list[_Entry], list[Caveat]]:
    """The runs whose figures stand, and what was found. ``bundles``: all that are in the folders."""
    beside = folder_findings([one.trace for one in runs], {each.path for each in bundles}, frozenset(folders))
    kept: list[_Entry] = []
    caveats: list[Caveat] = []
    for one in runs:
        path, found = str(one.trace.path), (*one.findings, *beside.get(one.trace.path, ()))
        if one.difference:
            caveats.append(Caveat(ALTERED, path, f"{ALTERED}, which are reported: {one.difference}"))
        for finding in found:
            text = f"left out, {finding.line()}" if finding.leaves_out else finding.line()
            caveats.append(Caveat(finding.name, path, text, finding.leaves_out))
        if not any(finding.leaves_out for finding in found):
            kept.append(one.entry)
    return kept, caveats


def checked(derived: Derived, entry: _Entry) -> Checked[_Entry]:
    """``entry``: what is read of it, with the path of its bundle."""
    trace = Trace.of(Path(entry.path), derived.record, derived.digest)  # type: ignore[attr-defined]
    return Checked(entry, trace, derived.findings, derived.difference)


def lines_of(caveats: Iterable[Caveat]) -> Iterator[str]:
    """A line each, a few of each kind."""
    for kind, alike in groupby(caveats, lambda caveat: caveat.kind):
        lines = [str(caveat) for caveat in alike]
        yield from few(lines, MOST_SHOWN, _REST.format(kind)) if kind != OTHER else lines
