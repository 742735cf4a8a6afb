"""The times of ranks, as arrays of rank x iteration x phase, of which figures are reductions.

Where a rank reported nothing an array holds NaN, which is no longer and no shorter than anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
        parts: dict[str, Any] = {
            name: getattr(self, name)[ranks]
            for name in ("ranks", "seconds", "elapsed", "by_trainer", "own", "wait", "since", "first")
        }
        return RankTimes(phases=self.phases, **parts)


def times_of(ranks: Mapping[int, tuple[Event, ...]]) -> RankTimes:
    """Of checked events: iterations are numbered from 0 without a gap, and have each phase at most once."""
    phases: dict[str, int] = {}
    rows = [_Row(events, phases) for events in ranks.values()]
    iterations = max((len(row.seconds) for row in rows), default=0)
    flat, cube = (len(rows), iterations), (len(rows), iterations, len(phases))
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
    for place, row in enumerate(rows):
        count = len(row.seconds)
        times.seconds[place, :count] = row.seconds
        times.elapsed[place, :count] = row.elapsed
        times.by_trainer[place, :count] = row.by_trainer
        times.first[place, :count] = row.first
        if row.cells:
            of_phases = np.array(row.cells)
            at = (of_phases[:, 0].astype(np.int64), of_phases[:, 1].astype(np.int64))
            times.own[place][at], times.wait[place][at], times.since[place][at] = of_phases[:, 2:].T
    return times


class _Row:
    """One rank: ``cells`` are (iteration, phase, own, wait, since)."""

    def __init__(self, events: tuple[Event, ...], phases: dict[str, int]) -> None:
        self.seconds: list[float] = []
        self.elapsed: list[float] = []
        self.by_trainer: list[bool] = []
        self.first: list[int] = []
        self.cells: list[tuple[float, ...]] = []
        nan = float("nan")
        waiting: list[tuple[float, ...]] = []
        before = iteration_before = nan
        for event in events:
            kind = type(event)
            if kind is Memory or kind is Environment:
                if not self.seconds and not waiting:
                    iteration_before = event.time
            elif isinstance(event, Phase):
                place = phases.setdefault(event.phase, len(phases))
                waiting.append((event.iteration, place, event.seconds, event.wait_seconds, event.time - before))
            elif isinstance(event, Iteration):
                self.seconds.append(event.seconds)
                self.elapsed.append(event.time - iteration_before)
                self.by_trainer.append(event.source == TRAINER)
                self.first.append(int(waiting[0][1]) if waiting else -1)
                self.cells += waiting
                waiting, iteration_before = [], event.time
            elif kind is Turn:  # others worked until now
                iteration_before = event.time
            else:
                continue
            before = event.time
