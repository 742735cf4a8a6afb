"""Reading results folders for a report: bundles with their records, what is damaged, and what a reader must know."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.survey import survey
from suite.bundle.cache.table import Derived, records_of
from suite.bundle.evidence import digest_if_any, digest_of_all
from suite.bundle.imported.record import ImportedRow
from suite.bundle.imported.store import IMPORT, ImportFolder, read_imports
from suite.bundle.store import Bundle, DamagedBundle, StillRunning
from suite.bundle.walk import is_trial
from suite.report.facts.entry import Entry, ReportEvidence
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted
from suite.report.trust import OTHER, RUNNING, VERSIONS, Caveat, few, lines_of, trusted
from suite.spec.base import UsageError


@dataclass(frozen=True)
class Found:
    """The runs of some folders.

    ``damaged``: one line for each bundle that was left out for it. ``caveats``: what else was left out or does not fit
    together, and records that are not what their events give, of one bundle each. ``imported``: other tools' logs.
    """

    entries: list[Entry]
    damaged: list[str]
    caveats: list[Caveat]
    read_from: ReportEvidence
    imported: tuple[ImportedRow, ...] = ()

    def paths(self) -> list[str]:
        return [*(entry.path for entry in self.entries), *(row.path for row in self.imported)]

    def warnings(self) -> list[str]:
        """What a reader needs of it, a line each that a terminal can show."""
        damaged = few([f"left out, damaged: {line}" for line in self.damaged], "damaged")
        return [visible(line, 400) for line in (*damaged, *lines_of(self.caveats))]


def read_entries(paths: Sequence[Path], with_imported: bool = False) -> Found:
    """Every readable bundle, once, with the record that its events give; runs that are under way or inconsistent are
    left out. ``paths``: folders, and archives of `suite pack`, or runs of these. ``with_imported``: other tools' logs
    are rows too, marked as such, and may be all there is.

    Raises UsageError when nothing can be reported.
    """
    with opened(paths) as places:
        return _as_given(_read(places, with_imported), places, paths)


def _read(places: Opened, with_imported: bool) -> Found:
    paths = places.folders
    surveyed, marked = survey(paths, IMPORT)
    bundles = [bundle for bundle in surveyed if not is_trial(bundle.path)]
    read: list[tuple[Entry, Derived]] = []
    trials = counted(len(surveyed) - len(bundles), "trial")
    text = f"{trials} of a study are no rows: suite tune shows what became of them"
    caveats = [Caveat(OTHER, "", text)] if len(bundles) < len(surveyed) else []
    imported, damaged = read_imports(list(map(ImportFolder, marked)))
    digests: list[str | None] = [*(row.digest for row in imported), *([None] * len(damaged))]
    for bundle, one in zip(bundles, records_of(bundles, places.holds), strict=True):
        if isinstance(one, StillRunning):
            caveats.append(Caveat(RUNNING, bundle.path, "left out, because it is still being run", leaves_out=True))
        elif isinstance(one, DamagedBundle):
            damaged.append(f"{bundle.path}: {one}")
            digests.append(digest_if_any(Bundle(Path(bundle.path))))
        else:
            read.append((Entry(one.manifest, one.record, bundle.path, one.digest), one))
            digests.append(one.digest)
    entries, recorded = trusted(read, bundles, paths)
    caveats += recorded
    known = [digest for digest in digests if digest is not None]
    whole = digest_of_all(known) if known and len(known) == len(digests) else None
    read_from = ReportEvidence(whole, tuple(path.as_posix() for path in paths))
    found = Found(entries, damaged, caveats, read_from, tuple(imported) if with_imported else ())
    if not entries and not found.imported:
        detail = f"; {found.warnings()[0]}" if found.warnings() else ""
        detail += "; what was imported is not compared" * bool(imported)
        raise UsageError(places.shown(f"no bundle to report in {', '.join(str(path) for path in paths)}{detail}"))
    caveats += _versions(entries)
    return found


def _as_given(found: Found, places: Opened, paths: Sequence[Path]) -> Found:
    """With the names of archives, where they were read in a folder that is gone afterwards."""
    if not places.archives:
        return found
    return Found(
        [replace(entry, path=places.shown(entry.path)) for entry in found.entries],
        [places.shown(line) for line in found.damaged],
        [replace(one, path=places.shown(one.path), text=places.shown(one.text)) for one in found.caveats],
        replace(found.read_from, paths=tuple(path.as_posix() for path in paths)),
        tuple(row.model_copy(update={"path": places.shown(row.path)}) for row in found.imported),
    )


def _versions(entries: Sequence[Entry]) -> list[Caveat]:
    """A caveat where runs are of more than one version of the suite, whose clocks and probes may not be alike."""
    stated = ((entry.record.environment.driver or {}).get("suite_version") for entry in entries)
    counts = sorted(Counter(version for version in stated if isinstance(version, str)).items())
    if len(counts) <= 1:
        return []
    known = ", ".join(f"{runs} of {name}" for name, runs in counts)
    return [Caveat(VERSIONS, "", f"runs of different versions of the suite: {known}")]
