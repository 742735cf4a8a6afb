"""Fitting the RL model: parameters most probable given published phases and iterations, and what was thought before.

As the fit of step times (``suite.fitting.fit``): residuals of logarithms with a soft loss, priors on every parameter,
and stacks' effects drawn to zero. The training physics beneath is fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from suite.fitting.fit import soft
from suite.fitting.rl_rows import RLRow
from suite.planner.jobs import Column, Jobs
from suite.planner.parameters import Parameters
from suite.planner.rl_iteration import Generation, Physics, Predicted, RLWork, physics, predict
from suite.planner.rl_parameters import RL_NAMES, RL_PRIORS, STACK_SPREAD, RLParameters

#: Scale of what the model need not explain, relative, by kind of measurement.
NOISE: Mapping[str, float] = {
    "iteration": 0.12,
    "generation": 0.12,
    "scoring": 0.12,
    "training": 0.10,
    "sync": 0.35,
    "memory": 0.08,
}
REPEATS_POWER = 0.5
#: Spread of a stack's effect on one device over that of its effect on all.
_ON_DEVICE = 0.8
_DIFFERENCE = 1e-3
_MOST_EVALUATIONS = 25


@dataclass(frozen=True)
class Measured:
    """One measured value: the row's position, metric, kind and part, seconds or bytes, and its weight."""

    row: int
    metric: str
    kind: str
    part: str
    value: float
    weight: float


@dataclass(frozen=True)
class Table:
    """Rows as columns, and every value that a prediction stands beside."""

    rows: tuple[RLRow, ...]
    work: RLWork
    measured: tuple[Measured, ...]

    @classmethod
    def of(cls, rows: Sequence[RLRow]) -> "Table":
        return cls(tuple(rows), work_of(rows), tuple(_measured(rows)))

    def take(self, keep: np.ndarray) -> "Table":
        return Table.of([row for row, kept in zip(self.rows, keep, strict=True) if kept])


def work_of(rows: Sequence[RLRow]) -> RLWork:
    """Candidates of rows, a column each."""
    jobs = Jobs.of([row.job for row in rows])

    def column(name: str) -> Column:
        return np.array([row.work[name] for row in rows])

    generation = Generation(
        devices=column("gen_devices"),
        tensor=column("gen_tensor"),
        samples=column("samples"),
        prompt=column("prompt"),
        response=column("response"),
        longest=column("longest"),
        spread=column("spread"),
        weight_bytes=column("gen_bytes"),
        cache_bytes=column("cache_bytes"),
        latent=(column("cache_bytes") > 0).astype(float),
        pool_share=column("pool_share"),
        eager=column("eager"),
    )
    names = ("steps", "weights", "scores", "colocated", "staleness", "chunked_loss", "flash_three", "offloaded")
    plain: dict[str, Any] = {name: column(name) for name in (*names, "one_by_one")}
    return RLWork(jobs=jobs, generation=generation, **plain)


def effect_names(rows: Sequence[RLRow]) -> list[tuple[str, str]]:
    """(phase, group) of every effect that the rows can tell of."""
    found = set()
    for row in rows:
        for kind, part in {(kind, part) for _, kind, part in row.values}:
            phases = STACK_SPREAD if part == "iteration" else ("generation", "sync") if "and" in part else (kind,)
            found |= {(phase, group) for phase in phases if phase in STACK_SPREAD for group in groups_of(row, phase)}
    return sorted(found)


def groups_of(row: RLRow, phase: str) -> tuple[str, ...]:
    """A row's stack, and its stack on its device. Weights go another way where they leave the device."""
    name = f"{row.stack} split" if phase == "sync" and not row.work["colocated"] else row.stack
    return name, f"{name}|{row.device.split('-')[0]}"


def with_effects(table: Table, effects: Mapping[str, Mapping[str, float]]) -> RLWork:
    """The candidates with their stacks' effects."""
    columns = {
        phase: np.array(
            [sum(effects.get(phase, {}).get(group, 0.0) for group in groups_of(row, phase)) for row in table.rows]
        )
        for phase in STACK_SPREAD
    }
    return replace(table.work, effects=columns)


def predictions(table: Table, parameters: Parameters, rl: RLParameters, base: Physics | None = None) -> Column:
    """What is predicted for every measured value."""
    found = predict(with_effects(table, rl.effects), parameters, rl, base)
    return _picked(table, found)


def _picked(table: Table, found: Predicted) -> Column:
    parts = _parts(found, np.maximum(1.0, np.asarray(table.work.scores)))
    return np.array([parts[each.part][each.row] for each in table.measured])


def _parts(found: Predicted, scores: Column) -> dict[str, Column]:
    return {
        "iteration": found.seconds,
        "generation": found.phases["generation"],
        "generation and sync": found.phases["generation"] + found.phases["sync"],
        "one score": found.phases["scoring"] / scores,
        "scores": found.phases["scoring"],
        "training": found.phases["training"],
        "sync": found.phases["sync"],
        "memory": found.memory["allocated"],
    }


def fit_rl(rows: Sequence[RLRow], parameters: Parameters, empty: RLParameters) -> RLParameters:
    """The most probable parameters and effects; deterministic."""
    from scipy.optimize import least_squares

    table = Table.of(rows)
    names = effect_names(rows)
    centre = np.concatenate([np.log([RL_PRIORS[name].centre for name in RL_NAMES]), np.zeros(len(names))])
    spread = np.concatenate(
        [
            [RL_PRIORS[name].spread for name in RL_NAMES],
            [STACK_SPREAD[phase] * (_ON_DEVICE if "|" in group else 1) for phase, group in names],
        ]
    )
    target = np.log([each.value for each in table.measured])
    noise = np.array([NOISE[each.kind] for each in table.measured])
    weight = np.array([each.weight for each in table.measured])

    members = _members(rows, names)
    copies = _Copies(table, parameters, members, len(centre) + 1)
    single = _Copies(table, parameters, members, 1)

    def losses(vectors: np.ndarray, through: _Copies) -> np.ndarray:
        with np.errstate(all="ignore"):
            predicted = np.log(np.maximum(through.predicted(vectors, empty), 1e-9))
        return soft(np.clip((predicted - target) / noise, -50, 50)) * weight

    def residuals(vector: np.ndarray) -> np.ndarray:
        return np.concatenate([losses(vector[None], single)[0], (vector - centre) / spread])

    def jacobian(vector: np.ndarray) -> np.ndarray:
        moved = np.vstack([vector, vector + _DIFFERENCE * np.eye(len(vector))])
        found = losses(moved, copies)
        return np.vstack([((found[1:] - found[0]) / _DIFFERENCE).T, np.diag(1 / spread)])

    solution = least_squares(residuals, centre, jac=jacobian, method="trf", max_nfev=_MOST_EVALUATIONS)
    return _from(solution.x, names, empty)


def _members(rows: Sequence[RLRow], names: Sequence[tuple[str, str]]) -> dict[str, np.ndarray]:
    """By phase a matrix rows x effects of ones and zeros."""
    index = {name: position for position, name in enumerate(names)}
    found = {phase: np.zeros((len(rows), len(names))) for phase in STACK_SPREAD}
    for phase, matrix in found.items():
        for position, row in enumerate(rows):
            for group in groups_of(row, phase):
                if (phase, group) in index:
                    matrix[position, index[phase, group]] = 1
    return found


class _Copies:
    """A table several times over, so that as many sets of parameters are predicted at once."""

    def __init__(self, table: Table, parameters: Parameters, members: Mapping[str, np.ndarray], count: int) -> None:
        self.table, self.parameters, self.members, self.count = table, parameters, members, count
        rows = np.tile(np.arange(len(table.rows)), count)
        jobs = table.work.jobs.take(rows)
        parts = {field.name: getattr(table.work.generation, field.name) for field in fields(table.work.generation)}
        generation = Generation(**{name: _repeated(value, rows) for name, value in parts.items()})
        plain = {
            field.name: _repeated(getattr(table.work, field.name), rows)
            for field in fields(table.work)
            if field.name not in ("jobs", "generation", "effects")
        }
        self.work = RLWork(jobs=jobs, generation=generation, **plain)
        found = physics(table.work, parameters.values)
        self.base = Physics(
            parts={name: value[rows] for name, value in found.parts.items()},
            **{field.name: getattr(found, field.name)[rows] for field in fields(found) if field.name != "parts"},
        )

    def predicted(self, vectors: np.ndarray, empty: RLParameters) -> np.ndarray:
        """[K, P] logarithms of parameters and effects to [K, N] predictions."""
        own, size = len(RL_NAMES), len(self.table.rows)
        values = {name: np.repeat(np.exp(vectors[:, position]), size) for position, name in enumerate(RL_NAMES)}
        effects = {phase: (vectors[:, own:] @ matrix.T).reshape(-1) for phase, matrix in self.members.items()}
        rl = empty.model_copy(update={"values": values})
        found = predict(replace(self.work, effects=effects), self.parameters, rl, self.base)
        scores = np.maximum(1.0, np.asarray(self.work.scores))
        parts = {name: value.reshape(self.count, size) for name, value in _parts(found, scores).items()}
        return np.column_stack([parts[each.part][:, each.row] for each in self.table.measured])


def _repeated(value: Any, rows: np.ndarray) -> Any:
    return value[rows] if isinstance(value, np.ndarray) else value


def _from(vector: np.ndarray, names: Sequence[tuple[str, str]], empty: RLParameters) -> RLParameters:
    effects: dict[str, dict[str, float]] = {phase: {} for phase in STACK_SPREAD}
    for (phase, group), value in zip(names, vector[len(RL_NAMES) :].tolist(), strict=True):
        effects[phase][group] = value
    values = dict(zip(RL_NAMES, np.exp(vector[: len(RL_NAMES)]).tolist(), strict=True))
    return empty.model_copy(update={"values": values, "effects": effects})


def _measured(rows: Sequence[RLRow]) -> list[Measured]:
    counts = Counter((row.key, kind) for row in rows for _, kind, _ in row.values if kind in NOISE)
    found = []
    for index, row in enumerate(rows):
        for (metric, kind, part), value in row.values.items():
            if kind in NOISE:
                weight = counts[row.key, kind] ** (-REPEATS_POWER / 2)
                found.append(Measured(index, metric, kind, part, value, weight))
    return found
