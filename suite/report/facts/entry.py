"""What goes into a report, what it rests on, and what all of its modules share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from suite.bundle.record import Record
from suite.spec.manifest import Manifest

#: Runs that a figure needs before it may be published, and before it may be put in an order (facts of the method).
RUNS_TO_PUBLISH, RUNS_TO_RANK = 3, 5


@dataclass(frozen=True)
class Entry:
    """One run: what was asked, what came out, the path of its bundle as the report shows it, and its digest."""

    manifest: Manifest
    record: Record
    path: str
    digest: str | None = None


def manifests_of(entries: Sequence[Entry]) -> list[Manifest]:
    """The manifest of each row once, without its repeats, in the order of the entries."""
    found: dict[str, Manifest] = {}
    for entry in entries:
        found.setdefault(entry.manifest.hash, entry.manifest)
    return list(found.values())


#: The clock of rows that the suite timed itself, between barriers.
SUITE_CLOCK = "suite"


@dataclass(frozen=True, order=True)
class Setting:
    """What two rows must share, besides their work, before their rates may be compared.

    ``turns``: of iterations, in which neighbours are resident and wait, or of whole runs, each alone. ``clock``: the
    suite's, or whose log the seconds are from: what one trainer's timers hold another's do not.
    """

    kind: Literal["engine", "trainer"]
    track: str
    device: Literal["cpu", "cuda"]
    precision: str
    threads_per_rank: int
    machine: str
    turns: Literal["rounds", "iterations"] = "rounds"
    asynchronous: bool = False
    clock: str = SUITE_CLOCK


@dataclass(frozen=True)
class BundleDigest:
    """A run's bundle with the digest of its evidence (docs/evidence.md); null where it has none."""

    path: str
    digest: str | None


@dataclass(frozen=True)
class ReportEvidence:
    """Where runs were read. ``digest``: over all bundles below ``paths``, those left out too; null where one has none.
    ``bundles``: those that a report is made of."""

    digest: str | None = None
    paths: tuple[str, ...] = ()
    bundles: tuple[BundleDigest, ...] = ()
