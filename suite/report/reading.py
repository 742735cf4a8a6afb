"""Reading results folders for a report: bundles with their records, what is damaged, and what a reader must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.derive import StillRunning, record_of
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle, find_bundles
from suite.bundle.verify import rederived
from suite.report.facts.model import Entry
from suite.report.formatting.escape import visible
from suite.spec.base import UsageError

#: Records are derived from their events where those of all bundles are at most this long together: a second or two.
DERIVED_BYTES = 16 << 20


@dataclass(frozen=True)
class Found:
    """The runs of some folders.

    ``damaged``: one line for each bundle that was left out for it. ``caveats``: what else was left out, and records
    that are not what their events give.
    """

    entries: list[Entry]
    damaged: list[str]
    caveats: list[str]

    def warnings(self) -> list[str]:
        """All of it, a line each that a terminal can show."""
        lines = [f"left out, damaged: {line}" for line in self.damaged] + self.caveats
        return [visible(line, 400) for line in lines]


def read_entries(paths: Sequence[Path]) -> Found:
    """Every readable bundle, once, with its record; runs that are under way are left out.

    Records are derived from their events, and are taken as they are stored only where there are too many events. Raises
    UsageError when nothing can be reported.
    """
    bundles = find_bundles(paths)
    size = sum(bundle.events_bytes() for bundle in bundles)
    found = Found([], [], [])
    for bundle in bundles:
        try:
            if bundle.running():
                raise StillRunning
            record = _derived(bundle, found.caveats) if size <= DERIVED_BYTES else record_of(bundle)
            entry = Entry(manifest=bundle.manifest(), record=record, path=bundle.path.as_posix())
            _require_same_run(entry)
        except StillRunning:
            found.caveats.append(f"{bundle.path}: left out, because it is still being run")
        except DamagedBundle as error:
            found.damaged.append(f"{bundle.path}: {error}")
        else:
            found.entries.append(entry)
    if not found.entries:
        detail = f"; {found.warnings()[0]}" if found.warnings() else ""
        raise UsageError(f"no bundle to report in {', '.join(str(path) for path in paths)}{detail}")
    if size > DERIVED_BYTES:
        found.caveats.append(
            f"{len(found.entries)} records were taken as they are stored, because their events are {size >> 20} MiB; "
            "suite verify derives them again"
        )
    once = list(_once(found.entries, found.caveats))
    return Found(once, found.damaged, [*found.caveats, *_versions(once)])


def _derived(bundle: Bundle, caveats: list[str]) -> Record:
    """The record that the events give. Raises DamagedBundle and StillRunning."""
    record, differences = rederived(bundle)
    if differences:
        more = f" and {len(differences) - 1} more" if len(differences) > 1 else ""
        caveats.append(
            f"{bundle.path}: record.json is not what its events give, which are reported: {differences[0]}{more}"
        )
    return record


def _versions(entries: Sequence[Entry]) -> list[str]:
    """A caveat where runs are of more than one version of the suite, whose clocks and probes may not be alike."""
    stated = [(entry.record.environment.driver or {}).get("suite_version") for entry in entries]
    counts = sorted(Counter(version for version in stated if isinstance(version, str)).items())
    if len(counts) <= 1:
        return []
    return [f"runs of different versions of the suite: {', '.join(f'{runs} of {name}' for name, runs in counts)}"]


def _require_same_run(entry: Entry) -> None:
    """Raises DamagedBundle where a record that was taken as it is stored is not of the manifest's run."""
    run, manifest = entry.record.run, entry.manifest
    if (run.id, run.manifest_hash) != (manifest.run.id, manifest.hash):
        raise DamagedBundle(f"record.json is of run {ascii(run.id)[:80]}, not of {manifest.run.id}")


def _once(entries: Sequence[Entry], caveats: list[str]) -> Iterator[Entry]:
    """Leave out copies: of no two runs of a manifest do start and iterations last the same to the last digit."""
    paths: dict[tuple, str] = {}
    for entry in entries:
        run, seconds = entry.record.run, entry.record.iterations.seconds
        first = paths.setdefault((run.manifest_hash, run.started, seconds or (run.id, run.ended)), entry.path)
        if first == entry.path:
            yield entry
        else:
            caveats.append(f"{entry.path}: left out, because it is the same run as {first}")
