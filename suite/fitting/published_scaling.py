"""Published weak- and strong-scaling rows: eta of the step time that the planner predicts beside eta as published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from suite.fitting.check import Check
from suite.fitting.entries import Entry

#: Seconds of a step by source and configuration.
Predicted = Mapping[tuple[str, str], float]
_SAME_CELLS = ("model", "url", "task", "gpu_model", "precision", "seq_len", "sharding", "act_ckpt")
_SAME_JOB = ("tensor", "pipeline", "context", "chunks", "micro_batch")


@dataclass(frozen=True)
class ScalingPoint:
    """Efficiency of one configuration against the smallest number of devices of its series, ``times`` as many.

    ``configs`` are source and configuration of the smallest and of this one.
    """

    source: str
    scaling: str
    times: float
    published: float
    predicted: float
    configs: tuple[tuple[str, str], tuple[str, str]]


def predicted_by(check: Check) -> Predicted:
    """What the closed form of the step model says of the checked rows."""
    return {(row.source, row.config): row.predicted for row in check.rows if row.kind == "step_time"}


def scaling_points(entries: Sequence[Entry], predicted: Predicted) -> list[ScalingPoint]:
    """Every configuration that differs from a smaller one only in devices and, when weak, in proportion in its batch.

    Of several with equal devices the first is taken.
    """
    series: dict[tuple[object, ...], dict[float, tuple[float, float, tuple[str, str]]]] = defaultdict(dict)
    for entry in entries:
        job, seconds = entry.job, predicted.get((entry.source, entry.config))
        if job is None or entry.step_seconds is None or seconds is None:
            continue
        same = (*(entry.cells.get(name) for name in _SAME_CELLS), *(job[name] for name in _SAME_JOB))
        batch, devices = job["global_batch"], job["devices"]
        for kind, fixed in (("weak", batch / devices), ("strong", batch)):
            key: tuple[object, ...] = (entry.source, entry.framework, kind, fixed, *same)
            series[key].setdefault(devices, (entry.step_seconds, seconds, (entry.source, entry.config)))
    points = []
    for key, counts in series.items():
        base = min(counts)
        for devices in sorted(set(counts) - {base}):
            times = devices / base
            # One step does work that grows with the devices (weak), or the same work on more of them (strong).
            share = 1.0 if key[2] == "weak" else 1 / times
            published = share * counts[base][0] / counts[devices][0]
            expected = share * counts[base][1] / counts[devices][1]
            configs = counts[base][2], counts[devices][2]
            points.append(ScalingPoint(str(key[0]), str(key[2]), times, published, expected, configs))
    return points


def scaling_table(entries: Sequence[Entry], check: Check) -> str:
    """The errors of eta by source and kind as Markdown."""
    groups: dict[tuple[str, str], list[ScalingPoint]] = defaultdict(list)
    for point in scaling_points(entries, predicted_by(check)):
        groups[point.source, point.scaling].append(point)
    lines = [
        "Scaling efficiency eta of training steps against the smallest number of devices of a series (same "
        "model, layout and release; rows that the planner is fitted on). Difference is in points of eta, "
        "predicted less published:",
        "",
        "| source | scaling | points | up to times N | published eta, range | predicted eta, range | median difference "
        "| median absolute | largest absolute |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (source, kind), points in sorted(groups.items()):
        difference = 100 * np.array([point.predicted - point.published for point in points])
        ranges = [_range([point.published for point in points]), _range([point.predicted for point in points])]
        lines.append(
            f"| {source} | {kind} | {len(points)} | {max(point.times for point in points):g} | {' | '.join(ranges)} "
            f"| {np.median(difference):+.1f} | {np.median(abs(difference)):.1f} | {abs(difference).max():.1f} |"
        )
    return "\n".join(lines)


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"
