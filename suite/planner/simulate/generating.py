"""One engine's continuous batching, sample by sample: who runs, and who waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple


@dataclass(frozen=True)
class Pace:
    """Seconds of an engine: of a step, and of each sample in a step."""

    step: float
    sample: float


class Generated(NamedTuple):
    """``seconds`` until the last sample, ``full`` of them while all places were taken."""

    seconds: float
    full: float


def generate(lengths: Sequence[float], places: int, pace: Pace, slow: float = 1.0) -> Generated:
    """Samples in their order; the next one takes the place of one that is complete (Yu et al., "Orca", OSDI 2022).

    Between two completions the number that run is constant, and so is the time of a step. ``slow``: a factor on it.
    """
    running: list[float] = []
    steps = now = full = 0.0
    waiting = 0
    while running or waiting < len(lengths):
        while waiting < len(lengths) and len(running) < places:
            heappush(running, steps + lengths[waiting])
            waiting += 1
        ends = heappop(running)
        rows = len(running) + 1
        seconds = slow * (ends - steps) * (pace.step + rows * pace.sample)
        if rows == places or waiting < len(lengths):
            full += seconds
        now, steps = now + seconds, ends
    return Generated(now, full)
