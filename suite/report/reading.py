"""Reading results folders for a report: bundles with their records, what is damaged, and what a reader must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.cache.records import DerivedRecords
from suite.bundle.derive import StillRunning
from suite.bundle.store import DamagedBundle, find_bundles
from suite.report.facts.model import Entry
from suite.report.formatting.escape import visible
from suite.spec.base import UsageError


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
    """Every readable bundle, once, with the record that its events give; runs that are under way are left out.

    Raises UsageError when nothing can be reported.
    """
    found = Found([], [], [])
    with DerivedRecords() as records:
        for bundle in find_bundles(paths):
            path = bundle.path.as_posix()
            try:
                derived = records.of(bundle)
            except StillRunning:
                found.caveats.append(f"{path}: left out, because it is still being run")
            except DamagedBundle as error:
                found.damaged.append(f"{path}: {error}")
            else:
                found.entries.append(Entry(manifest=derived.manifest, record=derived.record, path=path))
                if derived.difference:
                    found.caveats.append(
                        f"{path}: record.json is not what its events give, which are reported: {derived.difference}"
                    )
    if not found.entries:
        detail = f"; {found.warnings()[0]}" if found.warnings() else ""
        raise UsageError(f"no bundle to report in {', '.join(str(path) for path in paths)}{detail}")
    once = list(_once(found.entries, found.caveats))
    return Found(once, found.damaged, [*found.caveats, *_versions(once)])


def _versions(entries: Sequence[Entry]) -> list[str]:
    """A caveat where runs are of more than one version of the suite, whose clocks and probes may not be alike."""
    stated = [(entry.record.environment.driver or {}).get("suite_version") for entry in entries]
    counts = sorted(Counter(version for version in stated if isinstance(version, str)).items())
    if len(counts) <= 1:
        return []
    return [f"runs of different versions of the suite: {', '.join(f'{runs} of {name}' for name, runs in counts)}"]


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
