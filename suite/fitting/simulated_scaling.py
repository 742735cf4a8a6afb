"""The simulator against published scaling curves: eta of simulated training steps beside eta as published.

A step is simulated pass by pass (``suite.planner.simulate``) from what the planner predicts of a micro batch, of the
gradients and of the optimizer. Replicas are alike where nobody is drawn to be slow, so that one stands for all.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from math import ceil
from pathlib import Path

import numpy as np

from suite.fitting.check import fitted
from suite.fitting.entries import Entry, Unusable, entry_of, number
from suite.fitting.published import table_text
from suite.fitting.published_scaling import Predicted, ScalingPoint, scaling_points
from suite.planner.jobs import Jobs
from suite.planner.parameters import Parameters
from suite.planner.simulate.iteration import Setting, simulate
from suite.planner.timing import step_parts

#: Parts of a step that are no pass of a micro batch.
_ONCE = ("bubble", "gradient reduction", "optimizer", "stragglers")
#: Vendors' repeats of one configuration differ by up to this much, usually by less than half of it (docs/published).
SPREAD = 0.07
#: Of the points that are asked to lie within it.
BAR = 0.8
#: Of NeMo's launcher, which prints no batch: that of its own configuration of the model, on all devices. Where these
#: do not divide it, it was another one, and the point is not used.
_LAUNCHER, _LAUNCHER_WORK = "nemo-launcher", {"global_batch_seqs": "2048", "micro_batch": "4"}
#: At most so many misses are named.
_NAMED = 8


def simulated_seconds(entry: Entry, parameters: Parameters) -> float:
    """Seconds of an entry's training step by the simulator. The entry has a job."""
    assert entry.job is not None, "chosen by the caller"
    jobs = Jobs.of([entry.job])
    parts = {name: float(column[0]) for name, column in step_parts(jobs, parameters.values).items()}
    stages, chunks = int(jobs.pipeline[0]), int(jobs.chunks[0])
    micros = max(1, ceil(float((jobs.global_batch / jobs.data / jobs.micro_batch)[0]) - 1e-9))
    each = sum(seconds for name, seconds in parts.items() if name not in _ONCE) / micros
    share = 1 / (4 if jobs.recompute[0] == 3 else 3)
    passes = each * _unit(stages, chunks if micros % stages == 0 else 1, micros, share)
    once = parts["gradient reduction"] + parts["optimizer"] + parts["stragglers"]
    return (passes + once) * float(np.exp(fitted(parameters).effect(entry.groups)))


@cache
def _unit(stages: int, chunks: int, micros: int, share: float) -> float:
    """All passes of a step whose micro batch takes one second on a stage; ``share`` of it is the forward pass."""
    setting = Setting(
        stages=stages,
        chunks=chunks,
        steps=1,
        forward=share,
        backward=1 - share,
        score=0.0,
        passes=0.0,
        weights=np.ones((1, micros)),
    )
    return simulate(setting).seconds


def curve_entries(folder: Path) -> list[Entry]:
    """Configurations of the curves in ``folder`` that are in no fit."""
    configs: dict[str, dict[str, str]] = {}
    for path in sorted((folder / "curves").glob("*.csv")):
        for cells in csv.DictReader(io.StringIO(table_text(path), newline="")):
            if cells.get("metric") == "tokens_per_sec":
                configs.setdefault(cells["config_id"], {name: cell or "" for name, cell in cells.items() if name})
    found = []
    for config, cells in configs.items():
        # One curve for each release, which its configurations' names begin with.
        told = {**cells, **_LAUNCHER_WORK, "url": f"{cells['url']}#{config.rsplit('-', 1)[0]}"}
        rate = number(cells["value"])
        if rate is None or not _divides(told):
            continue
        try:
            found.append(entry_of(cells["source_id"], config, told, {"tokens_per_sec": rate}))
        except Unusable:
            continue
    return found


def _divides(cells: dict[str, str]) -> bool:
    """Whether the global batch is a whole number of micro batches on every device, without which nothing trains."""
    batch, micro, devices = (number(cells.get(name)) or 1.0 for name in ("global_batch_seqs", "micro_batch", "n_gpus"))
    return batch % (micro * devices) == 0


def simulated_points(entries: Sequence[Entry], parameters: Parameters) -> list[ScalingPoint]:
    """Every published point of a curve with its simulated efficiency."""
    timed = [entry for entry in entries if entry.job and entry.step_seconds]
    wanted = _on_curves(timed)
    predicted: Predicted = {
        (entry.source, entry.config): simulated_seconds(entry, parameters)
        for entry in timed
        if (entry.source, entry.config) in wanted
    }
    return scaling_points(timed, predicted)


def _on_curves(timed: Sequence[Entry]) -> set[tuple[str, str]]:
    """Configurations of series with several numbers of devices: no others need a simulation."""
    same = {(entry.source, entry.config): 1.0 for entry in timed}
    return {config for point in scaling_points(timed, same) for config in point.configs}


def simulated_table(entries: Sequence[Entry], curves: Sequence[Entry], parameters: Parameters) -> str:
    """By source and kind: how many points lie within the spread of repeats, and those that do not, as Markdown."""
    points = simulated_points([*entries, *curves], parameters)
    groups: dict[tuple[str, str], list[ScalingPoint]] = defaultdict(list)
    for point in points:
        groups[point.source, point.scaling].append(point)
    lines = [
        "The simulator against published scaling curves: eta of simulated training steps against the smallest number "
        f"of devices of a series. Within: simulated over published eta no further from 1 than {100 * SPREAD:.0f} %, by "
        "which a vendor's repeats of one configuration differ at most.",
        "",
        "| source | in the fit | scaling | points | up to times N | published eta | simulated | median off | within |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (source, kind), some in sorted(groups.items()):
        off = np.abs(_ratios(some) - 1)
        ranges = [_range([point.published for point in some]), _range([point.predicted for point in some])]
        known, most = "no" if source == _LAUNCHER else "yes", max(point.times for point in some)
        lines.append(
            f"| {source} | {known} | {kind} | {len(some)} | {most:g} | {' | '.join(ranges)} "
            f"| {100 * np.median(off):.1f} % | {np.sum(off <= SPREAD)} of {len(some)} |"
        )
    return "\n".join([*lines, "", _verdict(points)])


def _verdict(points: Sequence[ScalingPoint]) -> str:
    """One sentence with the bar, one with the points that are missed furthest."""
    off = np.abs(_ratios(points) - 1)
    if not len(off):
        return "No published curve was read."
    share = float(np.mean(off <= SPREAD))
    missed = [points[place] for place in np.argsort(-off) if off[place] > SPREAD]
    named = "; ".join(
        f"{point.configs[1][1]} at {point.times:g} times the devices, published {point.published:.2f}, simulated "
        f"{point.predicted:.2f}"
        for point in missed[:_NAMED]
    )
    told = f"Missed{' furthest' if len(missed) > _NAMED else ''}: {named}." if missed else "None is missed."
    answer = "reached" if share >= BAR else "missed"
    return f"All: {100 * share:.0f} % within ({100 * BAR:.0f} % asked: {answer}). {told}"


def _ratios(points: Sequence[ScalingPoint]) -> np.ndarray:
    return np.array([point.predicted / point.published for point in points])


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"
