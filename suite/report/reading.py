"""Reading results folders for a report: bundles with their records, what is damaged, and what a reader must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.records import Derived, DerivedRecords
from suite.bundle.derive import StillRunning
from suite.bundle.evidence import digest_of, digest_of_all
from suite.bundle.imported.record import ImportedRow
from suite.bundle.imported.store import find_all, read_imports
from suite.bundle.store import Bundle, DamagedBundle
from suite.bundle.walk import is_trial
from suite.report.facts.evidence import ReadFrom
from suite.report.facts.model import Entry
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted
from suite.report.trust import Checked, few, trusted
from suite.spec.base import UsageError


@dataclass(frozen=True)
class Found:
    """The runs of some folders.

    ``damaged``: one line for each bundle that was left out for it. ``caveats``: what else was left out or does not fit
    together, and records that are not what their events give. ``imported``: other tools' logs beside them.
    """

    entries: list[Entry]
    damaged: list[str]
    caveats: list[str]
    read_from: ReadFrom
    imported: tuple[ImportedRow, ...] = ()

    def paths(self) -> list[str]:
        """Of every bundle and import."""
        return [*(entry.path for entry in self.entries), *(row.path for row in self.imported)]

    def warnings(self) -> list[str]:
        """What a reader needs of it, a line each that a terminal can show."""
        damaged = few([f"left out, damaged: {line}" for line in self.damaged], "damaged")
        return [visible(line, 400) for line in (*damaged, *self.caveats)]


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
    found_bundles, imports = find_all(paths)
    bundles = [bundle for bundle in found_bundles if not is_trial(bundle.path)]
    checked: list[Checked] = []
    damaged: list[str] = []
    caveats = _trials(len(found_bundles) - len(bundles))
    imported, unreadable = read_imports(imports)
    digests: list[str | None] = []
    damaged += unreadable
    digests += [row.digest for row in imported] + [None] * len(unreadable)
    with DerivedRecords() as records:
        records.ahead([each for each in bundles if places.archive_of(each.path) is None], {})
        for bundle in bundles:
            try:
                derived = records.of(bundle, is_alone=places.archive_of(bundle.path) is not None)
            except StillRunning:
                caveats.append(f"{bundle.path}: left out, because it is still being run")
            except DamagedBundle as error:
                damaged.append(f"{bundle.path}: {error}")
                digests.append(_digest(bundle))
            else:
                checked.append(_checked(bundle, derived))
                digests.append(derived.digest)
    entries, told = trusted(checked, bundles, paths)
    caveats += told
    known = [digest for digest in digests if digest is not None]
    whole = digest_of_all(known) if known and len(known) == len(digests) else None
    read_from = ReadFrom(tuple(path.as_posix() for path in paths), whole)
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
        [places.shown(line) for line in found.caveats],
        replace(found.read_from, paths=tuple(path.as_posix() for path in paths)),
        tuple(row.model_copy(update={"path": places.shown(row.path)}) for row in found.imported),
    )


def _trials(count: int) -> list[str]:
    return [f"{counted(count, 'trial')} of a study are no rows: suite tune shows what became of them"] if count else []


def _digest(bundle: Bundle) -> str | None:
    try:
        return digest_of(bundle)
    except DamagedBundle:
        return None


def _checked(bundle: Bundle, derived: Derived) -> Checked:
    entry = Entry(derived.manifest, derived.record, bundle.path.as_posix(), derived.digest)
    return Checked(entry, bundle.path, derived.findings, derived.difference)


def _versions(entries: Sequence[Entry]) -> list[str]:
    """A caveat where runs are of more than one version of the suite, whose clocks and probes may not be alike."""
    stated = [(entry.record.environment.driver or {}).get("suite_version") for entry in entries]
    counts = sorted(Counter(version for version in stated if isinstance(version, str)).items())
    if len(counts) <= 1:
        return []
    return [f"runs of different versions of the suite: {', '.join(f'{runs} of {name}' for name, runs in counts)}"]
