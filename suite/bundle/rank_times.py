"""The times of ranks, as arrays of rank x iteration x phase, of which figures are reductions.

Where a rank reported nothing an array holds NaN, which is no longer and no shorter than anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suite.bundle.event_fields import TRAINER, Environment, Event, Iteration, Memory, Phase, Turn

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RankTimes:
    """The iterations that each rank completed, and their phases, in the order in which they came.

    ``seconds`` of iterations and what ``elapsed`` by the times of events: from that of the iteration before, of the
    set-up, or of its turn, to its own. ``by_trainer``: its seconds are those of the trainer's own log, of which every
    rank tells the same. Of phases the rank's ``own`` seconds, its ``wait`` until every rank was there, and the time
    ``since`` the event before its own. ``first``: the place of each iteration's first phase, -1 without any.
    """

    ranks: tuple[int, ...]
    phases: tuple[str, ...]
    seconds: Array
    elapsed: Array
    by_trainer: NDArray[np.bool_]
    own: Array
    wait: Array
    since: Array
    first: NDArray[np.int64]

    def of(self, ranks: slice) -> "RankTimes":
        """Some of the ranks, by their places."""
        return replace(self, **{name: value[ranks] for name, value in vars(self).items() if name != "phases"})


def times_of(ranks: Mapping[int, tuple[Event, ...]]) -> RankTimes:
    """Of checked events: iterations are numbered from 0 without a gap, and have each phase at most once."""
    phases: dict[str, int] = {}
    rows = [_row(events, phases) for events in ranks.values()]
    most = max((len(iterations) for iterations, _ in rows), default=0)
    flat, cube = (len(rows), most), (len(rows), most, len(phases))
    times = RankTimes(
        ranks=tuple(ranks),
        phases=tuple(phases),
        seconds=np.full(flat, np.nan),
        elapsed=np.full(flat, np.nan),
        by_trainer=np.zeros(flat, np.bool_),
        own=np.full(cube, np.nan),
        wait=np.full(cube, np.nan),
        since=np.full(cube, np.nan),
        first=np.full(flat, -1),
    )
    of_iterations = (times.seconds, times.elapsed, times.by_trainer, times.first)
    for place, (iterations, cells) in enumerate(rows):
        if iterations:
            for array, values in zip(of_iterations, zip(*iterations, strict=True), strict=True):
                array[place, : len(values)] = values
        if cells:
            of_phases = np.array(cells)
            at = (of_phases[:, 0].astype(np.int64), of_phases[:, 1].astype(np.int64))
            times.own[place][at], times.wait[place][at], times.since[place][at] = of_phases[:, 2:].T
    return times


def _row(events: tuple[Event, ...], phases: dict[str, int]) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
    """Of one rank (seconds, elapsed, by its trainer, first phase) of each iteration, and of their phases (iteration,
    phase, own, wait, since)."""
    iterations: list[tuple[float, ...]] = []
    cells: list[tuple[float, ...]] = []
    waiting: list[tuple[float, ...]] = []
    before = iteration_before = float("nan")
    for event in events:
        kind = type(event)
        if kind is Memory or kind is Environment:
            if not iterations and not waiting:
                iteration_before = event.time
        elif isinstance(event, Phase):
            place = phases.setdefault(event.phase, len(phases))
            waiting.append((event.iteration, place, event.seconds, event.wait_seconds, event.time - before))
        elif isinstance(event, Iteration):
            first = waiting[0][1] if waiting else -1
            iterations.append((event.seconds, event.time - iteration_before, event.source == TRAINER, first))
            cells += waiting
            waiting, iteration_before = [], event.time
        elif kind is Turn:  # others worked until now
            iteration_before = event.time
        else:
            continue
        before = event.time
    return iterations, cells
