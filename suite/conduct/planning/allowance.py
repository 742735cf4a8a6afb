"""How many iterations a run counts, and when it is given up, by what the planner expects of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from suite.spec.manifest import Limits, Measure

#: What a user may leave open.
Open = Literal["iterations", "run_seconds", "silence_seconds"]

#: Counted iterations fill the first and keep below the second, in seconds, within the bounds of their number.
_LEAST_MEASURED, _MOST_MEASURED = 20.0, 1800.0
_LEAST_ITERATIONS, _MOST_ITERATIONS = 3, 50
#: A run and its phases may take twice what is expected: published rates of PPO go down to 0.65 of the predicted ones
#: (``RateBand``).
MARGIN = 2.0
#: For start-up, the making of the weights and the end, of which nothing is predicted.
START_SECONDS = 1200.0
#: Limits are rounded up to these, so that a planner that was fitted anew changes few of them: minutes.
_STEPS = (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1080, 1440)
#: A run that is expected to need a longer limit than this is not started unless its user sets one.
LONGEST_LIMIT = 60.0 * _STEPS[-1]


class Pace(NamedTuple):
    """Expected seconds of one iteration and of its longest phase."""

    iteration: float
    longest_phase: float


def counted_iterations(measure: Measure, left_open: Sequence[Open], paces: Sequence[Pace]) -> int:
    """Iterations of runs of equal work, which have the same number: as many as the slowest does in half an hour.

    Those that were asked for, where they were not left open or nothing is expected of the runs.
    """
    if "iterations" not in left_open or not paces:
        return measure.iterations
    slowest = max(pace.iteration for pace in paces)
    usual = max(measure.iterations, math.ceil(_LEAST_MEASURED / slowest))
    possible = math.floor(_MOST_MEASURED / slowest) - measure.warmup
    return max(_LEAST_ITERATIONS, min(usual, possible, _MOST_ITERATIONS))


def limits_for(measure: Measure, asked: Limits, left_open: Sequence[Open], pace: Pace | None) -> Limits:
    """The limits of a run: those asked for, and for what was left open twice what is expected, rounded up."""
    if pace is None:
        return asked
    changes = {}
    if "run_seconds" in left_open:
        expected = START_SECONDS + MARGIN * run_seconds(measure, pace.iteration)
        changes["run_seconds"] = min(_rounded_up(expected), LONGEST_LIMIT)
    if "silence_seconds" in left_open:
        longest = min(LONGEST_LIMIT, max(asked.silence_seconds, MARGIN * pace.longest_phase))
        changes["silence_seconds"] = min(_rounded_up(longest), changes.get("run_seconds", asked.run_seconds))
    return asked.model_copy(update=changes)


def run_seconds(measure: Measure, iteration_seconds: float) -> float:
    """Seconds that all iterations of a run take, warm-up in."""
    return (measure.warmup + measure.iterations) * iteration_seconds


def _rounded_up(seconds: float) -> float:
    return next((60.0 * step for step in _STEPS if seconds <= 60 * step), math.ceil(seconds / 3600) * 3600.0)
