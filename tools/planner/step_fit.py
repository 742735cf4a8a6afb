"""Fitting: the parameters most probable given the published step times and what was thought before.

Residuals are logarithms of predicted over published time, soft at the tails so that an odd row cannot pull far;
stacks' effects are drawn to zero by their levels' priors (partial pooling: Gelman and Hill, "Data Analysis Using
Regression and Multilevel/Hierarchical Models", 2006, chapter 12). A stack that was never seen has no effect.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from suite.planner.parameters import load_priors
from suite.planner.training import step_seconds
from suite.planner.work import Column, Training
from tools.planner.columns import alone, jobs_of
from tools.planner.entries import Entry

#: Scale of what the model need not explain, relative: vendor repeats (1-7 %) and the physics that is left out.
NOISE = 0.12
REPEATS_POWER = 0.5
_DIFFERENCE = 1e-4
_MOST_EVALUATIONS, _NEAR = 60, 1e-6


@dataclass(frozen=True)
class Rows:
    """Published step times beside their jobs and the groups that their stacks belong to."""

    work: Training
    seconds: Column
    groups: tuple[Mapping[str, str], ...]
    weights: Column

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Rows":
        """The entries that have a job and a step time."""
        timed = [entry for entry in entries if entry.job and entry.step_seconds]
        return cls(
            work=alone(jobs_of([entry.job for entry in timed if entry.job])),
            seconds=np.array([entry.step_seconds for entry in timed], dtype=float),
            groups=tuple(entry.groups for entry in timed),
            weights=_weights(timed),
        )


@dataclass(frozen=True)
class Fitted:
    """The constants of training steps by name, and the effects of the groups that were seen."""

    values: Mapping[str, float]
    effects: Mapping[str, Mapping[str, float]]

    def predict(self, rows: Rows) -> Column:
        """Seconds of each row's step."""
        factors = np.exp([self.effect(groups) for groups in rows.groups])
        return step_seconds(rows.work, {**others(), **self.values}) * factors

    def effect(self, groups: Mapping[str, str]) -> float:
        """Sum of the effects of a stack's groups."""
        return sum(self.effects.get(level, {}).get(group, 0.0) for level, group in groups.items())


def others() -> dict[str, float]:
    """Constants of an iteration, on which no plain training step depends, as they were thought of before."""
    return {name: prior.centre for name, prior in load_priors().every.items()}


def fit(rows: Rows) -> Fitted:
    """The most probable parameters and effects; deterministic."""
    priors, rest = load_priors(), others()
    names = list(priors.steps)
    members, positions = _memberships(rows)
    centre = np.concatenate([np.log([prior.centre for prior in priors.steps.values()]), np.zeros(len(members))])
    spread = np.concatenate(
        [[prior.spread for prior in priors.steps.values()], [priors.levels[level] for level, _ in members]]
    )
    target = np.log(rows.seconds)
    own = len(names)

    def logs(vector: np.ndarray) -> np.ndarray:
        return np.log(step_seconds(rows.work, {**rest, **dict(zip(names, np.exp(vector), strict=True))}))

    def residuals(vector: np.ndarray) -> np.ndarray:
        predicted = logs(vector[:own]) + positions @ vector[own:]
        return np.concatenate([soft((predicted - target) / NOISE) * rows.weights, (vector - centre) / spread])

    def jacobian(vector: np.ndarray) -> np.ndarray:
        base = logs(vector[:own])
        columns = []
        for index in range(own):
            moved = vector[:own].copy()
            moved[index] += _DIFFERENCE
            columns.append((logs(moved) - base) / _DIFFERENCE)
        slopes = np.column_stack([*columns, positions])
        scaled = (base + positions @ vector[own:] - target) / NOISE
        return np.vstack([slopes * (_soft_slope(scaled) / NOISE * rows.weights)[:, None], np.diag(1 / spread)])

    solution = least_squares(residuals, centre, jac=jacobian, method="trf", ftol=_NEAR, max_nfev=_MOST_EVALUATIONS)
    effects: dict[str, dict[str, float]] = {level: {} for level in priors.levels}
    for (level, group), value in zip(members, solution.x[own:], strict=True):
        effects[level][group] = float(value)
    return Fitted(dict(zip(names, np.exp(solution.x[:own]).tolist(), strict=True)), effects)


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
