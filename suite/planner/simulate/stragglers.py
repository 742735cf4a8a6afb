"""How much slower a rank is at times than it is usually, as finished runs show it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from suite.bundle.event_fields import Phase
from suite.bundle.store import DamagedBundle, find_bundles
from suite.planner.work import Column
from suite.spec.base import UsageError

#: Phases whose ranks each do work of their own; iterations before these are warm-up.
_PHASES = {"generate": "generate", "score": "score", "reference": "score", "train": "train"}


@dataclass(frozen=True)
class Stragglers:
    """Seconds of a phase over the fleet's median of its run, by phase: each measured factor is as likely as the others.
    So a rank that is always slow is slow here too."""

    factors: dict[str, Column]
    runs: int


class Draws:
    """Factors drawn from a measured distribution, always 1 without one; the same seed draws the same ones."""

    def __init__(self, stragglers: Stragglers | None, seed: int) -> None:
        self._factors = stragglers.factors if stragglers else {}
        self._random = np.random.default_rng(seed)

    def factor(self, phase: str) -> float:
        known = self._factors.get(phase)
        return 1.0 if known is None or not len(known) else float(self._random.choice(known))


def measured(folders: Iterable[Path]) -> Stragglers:
    """What the finished runs in these folders show. UsageError where there are none.

    A rank's own seconds of a phase are without the wait for the others; warm-up iterations are left out.
    """
    factors: dict[str, list[float]] = defaultdict(list)
    runs = 0
    for bundle in find_bundles(folders):
        try:
            manifest, record, events = bundle.manifest(), bundle.record(), bundle.events()
        except DamagedBundle:
            continue
        if record is None or record.status != "ok":
            continue
        seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
        for event in events.of_all(Phase):
            if event.phase in _PHASES and event.iteration >= manifest.measure.warmup and event.rank is not None:
                seconds[event.rank, event.phase].append(event.seconds)
        for phase in {phase for _, phase in seconds}:
            ranks = [found for (_, name), found in seconds.items() if name == phase and len(found) > 2]
            usual = float(np.median([np.median(found) for found in ranks])) if ranks else 0.0
            if usual > 0:
                factors[_PHASES[phase]] += (np.concatenate(ranks) / usual).tolist()
        runs += bool(seconds)
    if not factors:
        raise UsageError("these folders hold no finished runs to learn from how uneven ranks are")
    return Stragglers({phase: np.array(found) for phase, found in factors.items()}, runs)
