"""Scaling curves: the best layout on ever more devices, and what binds there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from suite.planner.ask import Question, with_workload
from suite.planner.plan import Option
from suite.spec.base import Frozen

#: Which limit each part of an iteration stands for.
LIMITS = {
    "compute": ("matrix products", "attention", "head and loss", "critic"),
    "memory": ("elementwise", "optimizer", "offload"),
    "NVLink": ("tensor parallel", "context parallel", "expert parallel"),
    "network": ("gradient reduction", "parameter gathers", "pipeline sends", "stragglers"),
    "bubble": ("bubble",),
    "launches": ("launches",),
}


class Point(Frozen):
    """One number of devices; ``option`` is ``None`` where nothing fits or divides, and ``limit`` says why."""

    devices: int
    scaling: Literal["weak", "strong"]
    limit: str
    option: Option | None
    efficiency: float | None


def scaling_curve(asked: Question, devices: Sequence[int], scaling: Literal["weak", "strong"]) -> list[Point]:
    """Samples per second and efficiency against the smallest number of devices that fits.

    Strong scaling keeps the samples that the smallest number has in all.
    """
    workload = asked.workload.model_copy(update={"scaling": scaling})
    if scaling == "strong":
        workload = workload.model_copy(update={"rollouts": asked.workload.rollouts * min(devices)})
    points: list[Point] = []
    base: Option | None = None
    for count in sorted(devices):
        plan = with_workload(asked, workload).plan([count], most=1)
        if not plan.options:
            limit = "device memory" if plan.considered else "global batch too small"
            points.append(Point(devices=count, scaling=scaling, limit=limit, option=None, efficiency=None))
            continue
        option = plan.options[0]
        base = base or option
        share = option.samples_per_second / base.samples_per_second * base.devices / option.devices
        points.append(
            Point(devices=count, scaling=scaling, limit=binding_limit(option), option=option, efficiency=share)
        )
    return points


def binding_limit(option: Option) -> str:
    """What takes most of the iteration; scoring is counted as the training parts it is made of."""
    whole = sum(option.training.values()) or 1.0
    forward = option.phases["score"] + option.phases.get("reference", 0.0) + option.phases["prefill"]
    scale = 1 + forward / whole
    seconds = {limit: scale * sum(option.training.get(part, 0) for part in parts) for limit, parts in LIMITS.items()}
    seconds["decode bandwidth"] = option.phases["decode"]
    return max(seconds, key=lambda limit: seconds[limit])
