"""Reading results folders for a report: bundles with their records, what is damaged, and what a reader must know."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Generic, TypeVar

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.survey import Surveyed, survey
from suite.bundle.cache.table import Derived, records_of
from suite.bundle.evidence import digest_if_any, digest_of_all
from suite.bundle.findings import FINDINGS, Finding
from suite.bundle.folder import Trace, folder_findings
from suite.bundle.imported.record import ImportedRow
from suite.bundle.imported.store import IMPORT, ImportFolder, read_imports
from suite.bundle.store import Bundle, DamagedBundle, StillRunning
from suite.bundle.walk import is_trial
from suite.report.facts.entry import Entry, ReportEvidence
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, few
from suite.spec.base import UsageError

#: Bundles of which the same thing is said.
MOST_SHOWN, _REST = 5, "and {{}} more bundles: {} (suite verify --json)"
#: Kinds of what is told beside a finding's name.
RUNNING, ALTERED, VERSIONS, OTHER = "running", "record.json is not what its events give", "versions", ""
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
    version: str | None

    def at(self, path: str) -> "Checked[_Entry]":
        """The same of a bundle at that path, of whose entry it is a field."""
        entry = replace(self.entry, path=path)  # type: ignore[type-var]
        return replace(self, entry=entry, trace=replace(self.trace, path=Path(path)))


#: Of each bundle the run that it holds, or why there is none.
Look = Callable[[Sequence[Surveyed], Opened], Sequence[Checked[_Entry] | StillRunning | DamagedBundle]]


@dataclass(frozen=True)
class Found(Generic[_Entry]):
    """``damaged``: one line for each bundle that was left out for it. ``caveats``: what else does not fit together."""

    entries: list[_Entry]
    damaged: list[str]
    caveats: list[Caveat]
    read_from: ReportEvidence
    imported: tuple[ImportedRow, ...] = ()

    def paths(self) -> list[str]:
        return [entry.path for entry in (*self.entries, *self.imported)]  # type: ignore[attr-defined]

    def warnings(self) -> list[str]:
        """What a reader needs of it, a line each that a terminal can show."""
        damaged = few([f"left out, damaged: {line}" for line in self.damaged], MOST_SHOWN, _REST.format("damaged"))
        return [visible(line, 400) for line in (*damaged, *lines_of(self.caveats))]


def read_entries(paths: Sequence[Path], with_imported: bool = False) -> Found[Entry]:
    """Every readable bundle, once, with the record that its events give. ``paths``: folders, archives of `suite pack`,
    or runs of these. ``with_imported``: other tools' logs are rows too. Raises UsageError when nothing can be reported.
    """
    return read_with(_records, paths, with_imported)


def read_with(look: Look[_Entry], paths: Sequence[Path], with_imported: bool) -> Found[_Entry]:
    """As ``read_entries``, where less than a whole record is looked at; entries have a path."""
    with opened(paths) as places:
        found = _read(look, places, with_imported)
        if not places.archives:
            return found
        # with the names of archives, which were read in a folder that is gone afterwards
        return Found(
            [replace(entry, path=places.shown(entry.path)) for entry in found.entries],  # type: ignore
            [places.shown(line) for line in found.damaged],
            [replace(one, path=places.shown(one.path), text=places.shown(one.text)) for one in found.caveats],
            replace(found.read_from, paths=tuple(path.as_posix() for path in paths)),
            tuple(row.model_copy(update={"path": places.shown(row.path)}) for row in found.imported),
        )


def _records(bundles: Sequence[Surveyed], places: Opened) -> list[Checked[Entry] | StillRunning | DamagedBundle]:
    found = zip(bundles, records_of(bundles, places.holds), strict=True)
    return [
        checked(one, Entry(one.manifest, one.record, bundle.path, one.digest)) if isinstance(one, Derived) else one
        for bundle, one in found
    ]


def _read(look: Look[_Entry], places: Opened, with_imported: bool) -> Found[_Entry]:
    paths = places.folders
    surveyed, marked = survey(paths, IMPORT)
    bundles = [bundle for bundle in surveyed if not is_trial(bundle.path)]
    checked: list[Checked[_Entry]] = []
    tried = [digest_if_any(Bundle(Path(bundle.path))) for bundle in surveyed if is_trial(bundle.path)]
    text = f"{counted(len(tried), 'trial')} of a study are no rows: suite tune shows what became of them"
    caveats = [Caveat(OTHER, "", text)] if tried else []
    imported, damaged = read_imports(list(map(ImportFolder, marked)))
    digests = [*tried, *(row.digest for row in imported), *[None] * len(damaged)]
    for bundle, one in zip(bundles, look(bundles, places), strict=True):
        if isinstance(one, StillRunning):
            caveats.append(Caveat(RUNNING, bundle.path, "left out, because it is still being run", leaves_out=True))
        elif isinstance(one, DamagedBundle):
            damaged.append(f"{bundle.path}: {one}")
            digests.append(digest_if_any(Bundle(Path(bundle.path))))
        else:
            checked.append(one)
            digests.append(one.trace.digest)
    kept, recorded = trusted(checked, bundles, paths)
    known = [digest for digest in digests if digest is not None]
    whole = digest_of_all(known) if known and len(known) == len(digests) else None
    read_from = ReportEvidence(whole, tuple(path.as_posix() for path in paths))
    caveats += recorded
    versions = Counter(one.version for one in kept if one.version is not None)
    if len(versions) > 1:
        # whose clocks and probes may not be alike
        named = ", ".join(f"{runs} of {name}" for name, runs in sorted(versions.items()))
        caveats.append(Caveat(VERSIONS, "", f"runs of different versions of the suite: {named}"))
    found = Found([one.entry for one in kept], damaged, caveats, read_from, tuple(imported) if with_imported else ())
    if not found.entries and not found.imported:
        detail = f"; {found.warnings()[0]}" if found.warnings() else ""
        detail += "; what was imported is not compared" * bool(imported)
        raise UsageError(places.shown(f"no bundle to report in {', '.join(str(path) for path in paths)}{detail}"))
    return found


def checked(derived: Derived, entry: _Entry) -> Checked[_Entry]:
    """``entry``: what is read of it, with the path of its bundle."""
    trace = Trace.of(Path(entry.path), derived.record, derived.digest)  # type: ignore[attr-defined]
    stated = (derived.record.environment.driver or {}).get("suite_version")
    version = stated if isinstance(stated, str) else None
    return Checked(entry, trace, derived.findings, derived.difference, version)


def trusted(
    checked: Sequence[Checked[_Entry]], bundles: Sequence[Surveyed], paths: Iterable[Path]
) -> tuple[list[Checked[_Entry]], list[Caveat]]:
    """The runs whose figures stand, and what was found. ``bundles``: all that were found below ``paths``."""
    beside = folder_findings([one.trace for one in checked], {each.path for each in bundles}, frozenset(paths))
    kept: list[Checked[_Entry]] = []
    caveats: list[Caveat] = []
    for one in checked:
        path, found = str(one.trace.path), (*one.findings, *beside.get(one.trace.path, ()))
        if one.difference:
            caveats.append(Caveat(ALTERED, path, f"{ALTERED}, which are reported: {one.difference}"))
        for finding in found:
            text = f"left out, {finding.line()}" if finding.leaves_out else finding.line()
            caveats.append(Caveat(finding.name, path, text, finding.leaves_out))
        if not any(finding.leaves_out for finding in found):
            kept.append(one)
    order = [ALTERED, *FINDINGS]
    return kept, sorted(caveats, key=lambda caveat: order.index(caveat.kind))


def lines_of(caveats: Iterable[Caveat]) -> Iterator[str]:
    """A line each, a few of each kind."""
    for kind, alike in groupby(caveats, lambda caveat: caveat.kind):
        lines = [str(caveat) for caveat in alike]
        yield from few(lines, MOST_SHOWN, _REST.format(kind)) if kind != OTHER else lines
