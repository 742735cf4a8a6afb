"""Fitting what an RL iteration adds: constants most probable given published phases and iterations, and their priors.

As the fit of step times (``tools.planner.step_fit``): residuals of logarithms with a soft loss, priors on every
constant, and stacks' effects drawn to zero. The physics of training beneath is fixed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from suite.planner.iteration import Predicted, predict
from suite.planner.memory import OUTSIDE_ALLOCATOR
from suite.planner.parameters import load_priors
from suite.planner.work import Column, Generation, Pairs, Training
from tools.planner.columns import held_of, jobs_of
from tools.planner.rl_rows import RLRow
from tools.planner.step_fit import soft

#: Scale of what the model need not explain, relative, by kind of measurement: runs of one configuration differ by
#: about a tenth, those of weight synchronisation by more.
NOISE: Mapping[str, float] = {
    **dict.fromkeys(("iteration", "generation", "scoring", "training"), 0.12),
    "sync": 0.35,
}
KINDS = (*NOISE, "memory")
REPEATS_POWER = 0.5
#: Spread of a stack's effect on one device over that of its effect on all.
_ON_DEVICE = 0.8
_DIFFERENCE = 1e-3
_MOST_EVALUATIONS, _NEAR = 25, 1e-5
Values = Mapping[str, float]
Effects = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Measured:
    """One measured value: the row's position, kind and part, seconds or bytes, and its weight."""

    row: int
    kind: str
    part: str
    value: float
    weight: float


@dataclass(frozen=True)
class Table:
    """Rows as the model takes them, and every value that a prediction stands beside."""

    rows: tuple[RLRow, ...]
    work: Training
    gen: Generation
    pairs: Pairs
    measured: tuple[Measured, ...]

    @classmethod
    def of(cls, rows: Sequence[RLRow]) -> "Table":
        """Columns of rows."""
        pairs = Pairs.each(
            len(rows), **{name: _column(rows, name) for name in ("colocated", "staleness", "one_by_one")}
        )
        return cls(tuple(rows), training_of(rows), _generation(rows), pairs, tuple(_measured(rows)))

    def predicted(self, values: Values, effects: Effects) -> Predicted:
        """Everything of every row, with its stack's effects."""
        found = {
            phase: np.array(
                [sum(effects.get(phase, {}).get(group, 0.0) for group in groups_of(row, phase)) for row in self.rows]
            )
            for phase in load_priors().stacks
        }
        return predict(replace(self.work, effects=found), replace(self.gen, effects=found), self.pairs, values)

    def picked(self, found: Predicted) -> Column:
        """What is predicted for every measured value."""
        parts = parts_of(found)
        return np.array([parts[each.part][each.row] for each in self.measured])


def _column(rows: Sequence[RLRow], name: str) -> Column:
    return np.array([float(row.work[name]) for row in rows])


def training_of(rows: Sequence[RLRow]) -> Training:
    """The side of rows that trains."""
    jobs = jobs_of([row.job for row in rows])
    scores = _column(rows, "scores")
    held = held_of(jobs, _column(rows, "reference_held"))
    critic = _column(rows, "critic_parameters")
    for end in ("first", "last"):
        held[f"critic_{end}"] = held[f"critic_{end}"] + critic
    plain: dict[str, Any] = {
        name: _column(rows, name)
        for name in ("samples", "steps", "weights", "critic", "chunked_loss", "flash_three", "activations_offloaded")
    }
    return Training(
        jobs=jobs,
        largest=jobs,
        held=held,
        largest_tensor=np.maximum(jobs.hidden * jobs.ffn, jobs.vocab * jobs.hidden),
        old=np.minimum(scores, 1),
        reference=np.maximum(scores - 1, 0),
        regathers=0.0,
        **plain,
    )


def _generation(rows: Sequence[RLRow]) -> Generation:
    jobs, tensor = jobs_of([row.job for row in rows]), _column(rows, "gen_tensor")
    engine = _column(rows, "engine")
    one = np.ones(len(rows))
    own = replace(jobs, tensor=tensor, pipeline=one, context=one, expert_parallel=one)
    names = ("samples", "prompt", "response", "longest", "spread", "group", "cache_bytes", "pool_share", "eager")
    plain: dict[str, Any] = {name: _column(rows, name) for name in names}
    return Generation(
        jobs=own,
        devices=_column(rows, "gen_devices"),
        tensor=tensor,
        engine=engine,
        weight_bytes=_column(rows, "gen_bytes"),
        latent=(_column(rows, "cache_bytes") > 0).astype(float),
        **plain,
    )


def parts_of(found: Predicted) -> dict[str, Column]:
    """What a row may measure."""
    phases = found.phases
    return {
        "iteration": found.seconds,
        "generation": phases["generate"],
        "generation and sync": phases["generate"] + phases["sync"],
        "one score": phases["score"],
        "scores": phases["score"] + phases["reference"],
        "training": phases["train"],
        "sync": phases["sync"],
        "memory": found.memory.training - OUTSIDE_ALLOCATOR,
    }


def groups_of(row: RLRow, phase: str) -> tuple[str, ...]:
    """A row's stack, and its stack on its device. Weights go another way where they leave the device."""
    name = f"{row.stack} split" if phase == "sync" and not row.work["colocated"] else row.stack
    return name, f"{name}|{row.device.split('-')[0]}"


def effect_names(rows: Sequence[RLRow]) -> list[tuple[str, str]]:
    """(phase, group) of every effect that the rows can tell of."""
    spreads, found = load_priors().stacks, set()
    for row in rows:
        for kind, part in {(kind, part) for _, kind, part in row.values}:
            phases = spreads if part == "iteration" else ("generation", "sync") if "and" in part else (kind,)
            found |= {(phase, group) for phase in phases if phase in spreads for group in groups_of(row, phase)}
    return sorted(found)


def fit_iterations(rows: Sequence[RLRow], known: Values) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The most probable constants and effects; deterministic. ``known`` has all other constants."""
    priors = load_priors()
    names, groups = list(priors.iterations), effect_names(rows)
    table = Table.of(rows)
    timed = np.array([each.kind in NOISE for each in table.measured])
    own = len(names)
    centre = np.concatenate([np.log([prior.centre for prior in priors.iterations.values()]), np.zeros(len(groups))])
    spread = np.concatenate(
        [
            [prior.spread for prior in priors.iterations.values()],
            [priors.stacks[phase] * (_ON_DEVICE if "|" in group else 1) for phase, group in groups],
        ]
    )
    target = np.log([each.value for each in table.measured])
    scale = np.array([NOISE.get(each.kind, 1.0) for each in table.measured])
    weight = np.array([each.weight for each in table.measured])

    single, copies = (_Copies(table, groups, names, known, count) for count in (1, len(centre) + 1))

    def told(vectors: np.ndarray, through: _Copies) -> np.ndarray:
        with np.errstate(all="ignore"):
            off = (np.log(np.maximum(through.predicted(vectors), 1e-9)) - target) / scale
        return (soft(np.clip(off, -50, 50)) * weight)[:, timed]

    def residuals(vector: np.ndarray) -> np.ndarray:
        return np.concatenate([told(vector[None], single)[0], (vector - centre) / spread])

    def jacobian(vector: np.ndarray) -> np.ndarray:
        found = told(np.vstack([vector, vector + _DIFFERENCE * np.eye(len(vector))]), copies)
        return np.vstack([((found[1:] - found[0]) / _DIFFERENCE).T, np.diag(1 / spread)])

    solution = least_squares(residuals, centre, jac=jacobian, method="trf", ftol=_NEAR, max_nfev=_MOST_EVALUATIONS)
    values = dict(zip(names, np.exp(solution.x[:own]).tolist(), strict=True))
    return values, _effects(groups, solution.x[own:])


class _Copies:
    """A table several times over, so that as many sets of constants are predicted at once."""

    def __init__(
        self, table: Table, groups: Sequence[tuple[str, str]], names: Sequence[str], known: Values, count: int
    ) -> None:
        self.table, self.names, self.known, self.count = table, names, known, count
        rows = np.tile(np.arange(len(table.rows)), count)
        self.work, self.gen = table.work.take(rows), table.gen.take(rows)
        self.pairs = table.pairs.take(rows)
        self.members = {
            phase: np.array(
                [
                    [float(one == phase and group in groups_of(row, phase)) for one, group in groups]
                    for row in table.rows
                ]
            )
            for phase in load_priors().stacks
        }

    def predicted(self, vectors: np.ndarray) -> np.ndarray:
        """[K, P] logarithms of constants and effects to [K, N] predictions."""
        own, size = len(self.names), len(self.table.rows)
        moved = {name: np.repeat(np.exp(vectors[:, place]), size) for place, name in enumerate(self.names)}
        effects = {phase: (vectors[:, own:] @ matrix.T).reshape(-1) for phase, matrix in self.members.items()}
        work, gen = replace(self.work, effects=effects), replace(self.gen, effects=effects)
        parts = parts_of(predict(work, gen, self.pairs, {**self.known, **moved}))
        found = {name: column.reshape(self.count, size) for name, column in parts.items()}
        return np.column_stack([found[each.part][:, each.row] for each in self.table.measured])


def _effects(groups: Sequence[tuple[str, str]], vector: np.ndarray) -> dict[str, dict[str, float]]:
    effects: dict[str, dict[str, float]] = {phase: {} for phase in load_priors().stacks}
    for (phase, group), value in zip(groups, vector.tolist(), strict=True):
        effects[phase][group] = value
    return effects


def _measured(rows: Sequence[RLRow]) -> list[Measured]:
    counts = Counter((row.key, kind) for row in rows for _, kind, _ in row.values if kind in KINDS)
    found = []
    for index, row in enumerate(rows):
        for (_, kind, part), value in row.values.items():
            if kind in KINDS:
                weight = counts[row.key, kind] ** (-REPEATS_POWER / 2)
                found.append(Measured(index, kind, part, value, weight))
    return found
