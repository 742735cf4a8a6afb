"""One engine's continuous batching, sample by sample: who runs, who waits, when each is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True)
class Pace:
    """Seconds of an engine: of a step, of each sample in a step, of each prompt."""

    step: float
    sample: float
    prompt: float


@dataclass(frozen=True)
class Generated:
    """``seconds`` until the last sample, ``full`` of them while all places were taken; ``done`` of each sample."""

    seconds: float
    full: float
    done: tuple[float, ...]


def generate(lengths: Sequence[float], places: int, pace: Pace, slow: float = 1.0) -> Generated:
    """Samples in their order; the next one takes the place of one that is complete (Yu et al., "Orca", OSDI 2022).

    Between two completions the number that run is constant, and so is the time of a step. ``slow``: a factor on it.
    """
    running: list[tuple[float, int]] = []
    done = [0.0] * len(lengths)
    steps = now = full = 0.0
    waiting = 0
    while running or waiting < len(lengths):
        while waiting < len(lengths) and len(running) < places:
            heappush(running, (steps + lengths[waiting], waiting))
            now += slow * pace.prompt
            waiting += 1
        ends, sample = heappop(running)
        rows = len(running) + 1
        seconds = slow * (ends - steps) * (pace.step + rows * pace.sample)
        if rows == places or waiting < len(lengths):
            full += seconds
        now, steps = now + seconds, ends
        done[sample] = now
    return Generated(now, full, tuple(done))
