"""`python -m suite.fitting.small_to_large FOLDER`: a source's smallest published runs teach what its largest take.

As somebody would who has little of a new stack: all other sources are in the fit, and of this one the smallest third of
its runs is measured. They update what the fit knows of constants and stacks (``suite.fitting.bayes``, as
``suite plan --calibrate`` does with own runs). Prints the table of docs/arrangements.md.

The fit says how sure one is of constants that all sources share; each source's own lie about these. How much wider
than the fit's that spread is comes from the other sources alone: with it their smallest runs are most probable
(empirical Bayes: Gelman and others, "Bayesian Data Analysis", 2013, chapter 5).
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from suite.fitting.bayes import Known, Model, Vector, slopes, updated
from suite.fitting.entries import Entry
from suite.fitting.fit import NOISE, Fitted, Rows, fit
from suite.fitting.published import csv_files, read_published
from suite.fitting.tables import timed
from suite.planner.jobs import Column
from suite.planner.learnt import FOUR_FIFTHS, STEP_MISFIT
from suite.planner.parameters import LEVELS, NAMES, PRIORS
from suite.planner.timing import step_seconds
from suite.spec.terminal import say

#: Fewer rows of a source say nothing of small and large.
_LEAST = 6
_SHARE = 3
#: What the errors after are asked to be of those before.
BAR = 0.5
BAND_BAR = (0.75, 0.85)
#: Factors on the fit's spreads of constants of which the most probable is taken.
WIDER = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Source:
    """One source's largest runs: logarithms of published over predicted, before and after its smallest were seen, and
    the standard deviations that the predictions came with. ``wider`` is the factor on the constants' spreads."""

    name: str
    taught: int
    wider: float
    off: tuple[Column, Column]
    deviations: tuple[Column, Column]

    def errors(self, which: int) -> Column:
        """Absolute relative errors of predictions, 0 before and 1 after."""
        return np.abs(np.exp(-self.off[which]) - 1)

    def inside(self, which: int) -> Column:
        """Whether each lies in its 80 % band."""
        return np.abs(self.off[which]) <= FOUR_FIFTHS * self.deviations[which]


class Stack:
    """Constants and the effects of a stack's groups as one vector of logarithms."""

    def __init__(self, fitted: Fitted, others: Rows, rows: Rows) -> None:
        self.fitted, self.others = fitted, others
        self.groups = sorted({(level, group) for groups in rows.groups for level, group in groups.items()})

    def before(self) -> Known:
        """What the fit on others knows: its values, and its posterior around them (Laplace's approximation)."""
        effects = [self.fitted.effects.get(level, {}).get(group, 0.0) for level, group in self.groups]
        mean = np.concatenate([self.fitted.vector, effects])
        spreads = [*(PRIORS[name].spread for name in NAMES), *(LEVELS[level] for level, _ in self.groups)]
        told = slopes(self.model(self.others), mean) * (self.others.weights / NOISE)[:, None]
        return Known(mean, np.linalg.inv(np.diag(1 / np.square(spreads)) + told.T @ told))

    def model(self, rows: Rows) -> Model:
        """Logarithms of the rows' seconds."""
        index = {group: place for place, group in enumerate(self.groups)}
        positions = np.zeros((len(rows.groups), len(self.groups)))
        for row, groups in enumerate(rows.groups):
            for group in groups.items():
                positions[row, index[group]] = 1

        def seconds(vector: Vector) -> Vector:
            return np.log(step_seconds(rows.jobs, vector[: len(NAMES)])) + positions @ vector[len(NAMES) :]

        return seconds


@dataclass(frozen=True)
class Task:
    """A source's smallest and largest runs, and what the fit on all other sources knows."""

    small: Rows
    large: Rows
    stack: Stack
    known: Known

    @classmethod
    def of(cls, rows: Rows, own: np.ndarray, small: np.ndarray, large: np.ndarray) -> "Task":
        others, taught = rows.take(~own), _of(rows, small)
        stack = Stack(fit(others), others, rows)
        return cls(taught, _of(rows, large), stack, stack.before())

    def widened(self, factor: float) -> Known:
        """What is known of a source's own constants, ``factor`` times as wide; effects of stacks as they are."""
        spreads = np.where(np.arange(len(self.known.mean)) < len(NAMES), factor, 1.0)
        return Known(self.known.mean, self.known.covariance * np.outer(spreads, spreads))

    @cached_property
    def evidence(self) -> Column:
        """Logarithms of the density of the smallest runs under each factor of ``WIDER``, to a linear model."""
        model = self.stack.model(self.small)
        slope = slopes(model, self.known.mean)
        off = np.log(self.small.seconds) - model(self.known.mean)
        found = []
        for factor in WIDER:
            covariance = slope @ self.widened(factor).covariance @ slope.T + np.diag(self.noise**2)
            _, volume = np.linalg.slogdet(covariance)
            found.append(-(off @ np.linalg.solve(covariance, off) + volume) / 2)
        return np.array(found)

    @property
    def noise(self) -> Column:
        """Rows that differ in devices or release alone tell little more than one (``suite.fitting.fit``)."""
        return STEP_MISFIT / self.small.weights


def sources(
    entries: Sequence[Entry], only: Collection[str] | None = None, wider: Mapping[str, float] | None = None
) -> list[Source]:
    """Every source (or ``only`` some) that has small and large runs: the third of least and of most FLOPs of a step.

    Factors on the constants' spreads that are not given by ``wider`` are chosen on the other sources asked for.
    """
    rows = Rows.of(entries)
    jobs = rows.jobs
    work = jobs.global_batch * jobs.sequence * (jobs.layers * jobs.elements + jobs.vocab * jobs.hidden)
    names = np.array([entry.source for entry in entries])
    tasks = {}
    for name in sorted(set(names.tolist()) if only is None else only):
        own = np.flatnonzero(names == name)
        order = own[np.argsort(work[own], kind="stable")]
        third = len(order) // _SHARE
        small, large = order[:third], order[-third:]
        if len(own) >= _LEAST and work[small].max() < work[large].min():
            tasks[name] = Task.of(rows, names == name, small, large)
    return judged([_source(name, task, (wider or {}).get(name) or chosen(tasks, name)) for name, task in tasks.items()])


def judged(found: Sequence[Source]) -> list[Source]:
    """With widths of the bands after by what held of the other sources: four fifths of their largest runs lie within so
    many deviations (locally weighted split conformal: Lei and others, "Distribution-free predictive inference for
    regression", 2018, section 5.2)."""
    result = []
    for one in found:
        others = [np.abs(other.off[1]) / other.deviations[1] for other in found if other is not one]
        times = float(np.quantile(np.concatenate(others), 0.8)) / FOUR_FIFTHS if others else 1.0
        result.append(replace(one, deviations=(one.deviations[0], times * one.deviations[1])))
    return result


def chosen(tasks: Mapping[str, Task], name: str) -> float:
    """The factor under which the other sources' smallest runs are most probable."""
    others = [task.evidence for other, task in tasks.items() if other != name]
    return WIDER[int(np.argmax(np.sum(others, axis=0)))] if others else 1.0


def _source(name: str, task: Task, wider: float) -> Source:
    before = task.widened(wider)
    after = updated(before, task.stack.model(task.small), np.log(task.small.seconds), task.noise)
    model = task.stack.model(task.large)
    known = (before, after)
    off = [np.log(task.large.seconds) - model(each.mean) for each in known]
    deviations = [each.deviation(model, STEP_MISFIT) for each in known]
    return Source(name, len(task.small.seconds), wider, (off[0], off[1]), (deviations[0], deviations[1]))


def _of(rows: Rows, places: np.ndarray) -> Rows:
    mask = np.zeros(len(rows.seconds), bool)
    mask[places] = True
    return rows.take(mask)


def table(found: Sequence[Source]) -> list[str]:
    """Errors in Markdown, percent; the last row is of all, and a sentence says whether the bars are reached."""
    lines = [
        "| source | taught | predicted | spread of constants times | before | after | in the band before | after "
        "| width after over before |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        lines.append(f"| {one.name} | {one.taught} | {len(one.off[0])} | {one.wider:g} | {_cells([one])} |")
    taught, predicted = sum(one.taught for one in found), sum(len(one.off[0]) for one in found)
    lines.append(f"| **all** | {taught} | {predicted} | - | {_cells(found)} |")
    before, after = (float(np.median(np.concatenate([one.errors(which) for one in found]))) for which in (0, 1))
    inside = float(np.mean(np.concatenate([one.inside(1) for one in found])))
    held = BAND_BAR[0] <= inside <= BAND_BAR[1]
    own = np.concatenate([np.abs(np.exp(np.median(one.off[0]) - one.off[0]) - 1) for one in found])
    return [
        *lines,
        "",
        f"The median error after is {after / before:.2f} of the one before (at most {BAR:g} asked: "
        f"{'reached' if after <= BAR * before else 'missed'}). One factor for each source, taken from its largest "
        f"themselves, would leave a median of {100 * float(np.median(own)):.1f} %. {100 * inside:.0f} % of the largest "
        f"lie in their 80 % band (75 to 85 % asked: {'reached' if held else 'missed'}).",
    ]


def _cells(found: Sequence[Source]) -> str:
    errors = [_shown(np.concatenate([one.errors(which) for one in found])) for which in (0, 1)]
    inside = [f"{100 * np.mean(np.concatenate([one.inside(which) for one in found])):.0f} %" for which in (0, 1)]
    before, after = (np.concatenate([one.deviations[which] for one in found]) for which in (0, 1))
    return " | ".join([*errors, *inside, f"{np.median(after / before):.2f}"])


def _shown(errors: Column) -> str:
    return f"{100 * float(np.median(errors)):.1f} / {100 * float(np.quantile(errors, 0.9)):.1f}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("published", type=Path, help="folder of CSV files in the published format")
    asked = parser.parse_args()
    for line in table(sources(timed(read_published(csv_files([asked.published]))))):
        say(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
