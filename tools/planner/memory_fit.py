"""Fitting the memory model: measured peaks, and one-sided evidence of every job that is known to have run."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import least_squares

from suite.planner.memory import OUTSIDE_ALLOCATOR, training_phases
from suite.planner.parameters import load_priors
from suite.planner.work import Column, Training
from tools.planner.columns import alone, jobs_of
from tools.planner.entries import Entry
from tools.planner.rl_rows import RLRow

#: Relative scale of a measured peak's error, and of how far above its device a job that ran may seem to be.
_PEAK_NOISE, _RAN_NOISE = 0.05, 0.10
Values = Mapping[str, float]


def work_of(entries: Sequence[Entry]) -> Training:
    """Plain training as ``suite.planner.memory`` takes it. fp16 in Megatron's recipe keeps other states."""
    half = np.array([float("fp16" in entry.cells.get("precision", "").lower()) for entry in entries])
    jobs = jobs_of([entry.job for entry in entries if entry.job])
    return alone(jobs, half=half)


def peaks(work: Training, p: Values) -> Column:
    """Bytes that an allocator reserves of each job at its fullest moment."""
    phases = training_phases(work, p).values()
    return np.max([np.asarray(sum(parts.values())) for parts in phases], axis=0) - OUTSIDE_ALLOCATOR


def fit_memory(entries: Sequence[Entry], rows: Sequence[RLRow]) -> dict[str, float]:
    """The most probable parameters of the memory model; priors alone where nothing was measured."""
    from tools.planner.iteration_fit import training_of

    priors = load_priors().memory
    names = list(priors)
    centre = np.log([priors[name].centre for name in names])
    spread = np.array([priors[name].spread for name in names])
    seen = [entry for entry in entries if entry.job and entry.peak_memory_bytes]
    told = [row for row in rows if any(kind == "memory" for _, kind, _ in row.values)]
    ran = [entry for entry in entries if entry.job and entry.step_seconds and entry.cells.get("act_ckpt")]
    measured: list[tuple[Training, list[float]]] = []
    if seen:
        measured.append((work_of(seen), [entry.peak_memory_bytes or 0.0 for entry in seen]))
    if told:
        measured.append((training_of(told), [peak_of(row) for row in told]))
    capacity = np.array([(entry.job or {})["capacity"] for entry in ran])
    known = work_of(ran) if ran else None

    def residuals(vector: np.ndarray) -> np.ndarray:
        p = dict(zip(names, np.exp(vector), strict=True))
        parts = [(vector - centre) / spread]
        parts += [np.log(peaks(work, p) / np.array(bytes_)) / _PEAK_NOISE for work, bytes_ in measured]
        if known is not None:
            over = np.log((peaks(known, p) + OUTSIDE_ALLOCATOR) / capacity)
            parts.append(np.maximum(0, over) / _RAN_NOISE / np.sqrt(len(ran) / 10))
        return np.concatenate(parts)

    return dict(zip(names, np.exp(least_squares(residuals, centre, loss="linear").x).tolist(), strict=True))


def peak_of(row: RLRow) -> float:
    """Bytes that a row measured."""
    return next(value for (_, kind, _), value in row.values.items() if kind == "memory")
