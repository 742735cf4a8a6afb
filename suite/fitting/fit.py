"""Fitting: the parameters most probable given the published step times and what was thought before.

Residuals are logarithms of predicted over published time, soft at the tails so that an odd row cannot pull far;
stacks' effects are drawn to zero by their levels' priors (partial pooling: Gelman and Hill, "Data Analysis Using
Regression and Multilevel/Hierarchical Models", 2006, chapter 12). A stack that was never seen has no effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from suite.fitting.entries import Entry
from suite.planner.jobs import Column, Jobs
from suite.planner.parameters import LEVELS, NAMES, PRIORS
from suite.planner.timing import step_seconds

#: Scale of what the model need not explain, relative: vendor repeats (1-7 %) and the physics that is left out.
NOISE = 0.12
REPEATS_POWER = 0.5
_DIFFERENCE = 1e-4
_MOST_EVALUATIONS = 60


@dataclass(frozen=True)
class Rows:
    """Published step times beside their jobs and the groups that their stacks belong to."""

    jobs: Jobs
    seconds: Column
    groups: tuple[Mapping[str, str], ...]
    weights: Column

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Rows":
        """The entries that have a job and a step time."""
        timed = [entry for entry in entries if entry.job and entry.step_seconds]
        return cls(
            jobs=Jobs.of([entry.job for entry in timed if entry.job]),
            seconds=np.array([entry.step_seconds for entry in timed], dtype=float),
            groups=tuple(entry.groups for entry in timed),
            weights=_weights(timed),
        )

    def take(self, index: np.ndarray) -> "Rows":
        """The rows of a mask."""
        kept = tuple(group for group, keep in zip(self.groups, index, strict=True) if keep)
        return Rows(self.jobs.take(index), self.seconds[index], kept, self.weights[index])


@dataclass(frozen=True)
class Fitted:
    """Logarithms of the parameters, and the effects of the groups that were seen."""

    vector: np.ndarray
    effects: Mapping[str, Mapping[str, float]]

    def predict(self, rows: Rows) -> Column:
        """Seconds of each row's step."""
        return step_seconds(rows.jobs, self.vector) * np.exp([self.effect(groups) for groups in rows.groups])

    def effect(self, groups: Mapping[str, str]) -> float:
        """Sum of the effects of a stack's groups."""
        return sum(self.effects[level].get(group, 0.0) for level, group in groups.items())


def fit(rows: Rows) -> Fitted:
    """The most probable parameters and effects; deterministic."""
    from scipy.optimize import least_squares

    members, positions = _memberships(rows)
    centre = np.concatenate([np.log([PRIORS[name].centre for name in NAMES]), np.zeros(len(members))])
    spread = np.concatenate([[PRIORS[name].spread for name in NAMES], [LEVELS[level] for level, _ in members]])
    target = np.log(rows.seconds)
    own = len(NAMES)

    def residuals(vector: np.ndarray) -> np.ndarray:
        predicted = np.log(step_seconds(rows.jobs, vector[:own])) + positions @ vector[own:]
        return np.concatenate([soft((predicted - target) / NOISE) * rows.weights, (vector - centre) / spread])

    def jacobian(vector: np.ndarray) -> np.ndarray:
        base = np.log(step_seconds(rows.jobs, vector[:own]))
        columns = []
        for index in range(own):
            moved = vector[:own].copy()
            moved[index] += _DIFFERENCE
            columns.append((np.log(step_seconds(rows.jobs, moved)) - base) / _DIFFERENCE)
        slopes = np.column_stack([*columns, positions])
        scaled = (base + positions @ vector[own:] - target) / NOISE
        return np.vstack([slopes * (_soft_slope(scaled) / NOISE * rows.weights)[:, None], np.diag(1 / spread)])

    solution = least_squares(residuals, centre, jac=jacobian, method="trf", max_nfev=_MOST_EVALUATIONS)
    effects: dict[str, dict[str, float]] = {level: {} for level in LEVELS}
    for (level, group), value in zip(members, solution.x[own:], strict=True):
        effects[level][group] = float(value)
    return Fitted(solution.x[:own], effects)


def _weights(entries: Sequence[Entry]) -> Column:
    """Rows that differ in devices or release alone tell little more than one: n of them weigh as n^(1 - POWER)."""
    kinds = [_kind(entry) for entry in entries]
    counts = Counter(kinds)
    return np.array([counts[kind] ** (-REPEATS_POWER / 2) for kind in kinds])


def _kind(entry: Entry) -> tuple[object, ...]:
    job = entry.job or {}
    layout = ("tensor", "pipeline", "context", "micro_batch", "sequence", "recompute", "low_rank")
    return entry.groups["framework|device|precision"], entry.model, *(job[name] for name in layout)


def _memberships(rows: Rows) -> tuple[list[tuple[str, str]], np.ndarray]:
    """The groups seen, and a matrix rows x groups of ones and zeros."""
    members = sorted({(level, group) for groups in rows.groups for level, group in groups.items()})
    index = {member: position for position, member in enumerate(members)}
    matrix = np.zeros((len(rows.groups), len(members)))
    for row, groups in enumerate(rows.groups):
        for member in groups.items():
            matrix[row, index[member]] = 1
    return members, matrix


def soft(scaled: np.ndarray) -> np.ndarray:
    """Square roots of the soft-l1 loss, signed: straight in the middle, growing as a root at the tails."""
    return np.sign(scaled) * np.sqrt(2 * (np.sqrt(1 + scaled**2) - 1))


def _soft_slope(scaled: np.ndarray) -> np.ndarray:
    value = np.abs(soft(scaled))
    return np.where(value > 1e-6, np.abs(scaled) / np.sqrt(1 + scaled**2) / np.maximum(value, 1e-6), 1.0)
