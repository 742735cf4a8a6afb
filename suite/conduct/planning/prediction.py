"""The planner beside runs: iterations and limits by the time expected, predictions. It is imported for runs on CUDA in
16 bit alone: of a CPU it knows nothing."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from suite.spec.manifest import Limits, Manifest, Measure

if TYPE_CHECKING:
    from suite.bundle.record import Record

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


def counted_iterations(measure: Measure, left_open: Sequence[Open], paces: Sequence[float]) -> int:
    """Of runs of equal work, whose iterations should take these ``paces`` in seconds and which have the same number: as
    many as the slowest does in half an hour, or as asked for."""
    if "iterations" not in left_open or not paces:
        return measure.iterations
    slowest = max(paces)
    usual = max(measure.iterations, math.ceil(_LEAST_MEASURED / slowest))
    possible = math.floor(_MOST_MEASURED / slowest) - measure.warmup
    return max(_LEAST_ITERATIONS, min(usual, possible, _MOST_ITERATIONS))


def limits_for(
    measure: Measure, asked: Limits, left_open: Sequence[Open], predicted: Mapping[str, Any] | None
) -> Limits:
    """The limits of a run: those asked for, and for what was left open twice what is expected, rounded up."""
    if predicted is None:
        return asked
    changes = {}
    if "run_seconds" in left_open:
        expected = START_SECONDS + MARGIN * run_seconds(measure, predicted["iteration_seconds"])
        changes["run_seconds"] = _rounded_up(expected)
    if "silence_seconds" in left_open:
        longest = max(asked.silence_seconds, MARGIN * max(predicted["phases"].values()))
        changes["silence_seconds"] = min(_rounded_up(longest), changes.get("run_seconds", asked.run_seconds))
    return asked.model_copy(update=changes)


def run_seconds(measure: Measure, iteration_seconds: float) -> float:
    """Seconds that all iterations of a run take, warm-up in."""
    return (measure.warmup + measure.iterations) * iteration_seconds


def _rounded_up(seconds: float) -> float:
    return next((60.0 * step for step in _STEPS if seconds <= 60 * step), LONGEST_LIMIT)


def can_be_predicted(measure: Measure) -> bool:
    """Whether the planner could know such a run at all."""
    return measure.device == "cuda" and measure.precision != "fp32"


def with_prediction(record: "Record", manifest: Manifest) -> "Record":
    """The record with what the planner expected of the run, where it knows the device that the worker saw."""
    if not can_be_predicted(manifest.measure):
        return record
    from suite.planner.predict_manifest import device_of, predict_manifest

    predicted = predict_manifest(manifest, device_of(record))
    return record if predicted is None else replace(record, predicted=predicted)
