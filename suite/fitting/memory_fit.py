"""Fitting the memory model: measured peaks, and one-sided evidence of every job that is known to have run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suite.fitting.entries import Entry
from suite.planner.jobs import Column, Jobs
from suite.planner.memory import MEMORY_PRIORS, OUTSIDE_ALLOCATOR, peak_bytes

#: Relative scale of a measured peak's error, and of how far above its device a job that ran may seem to be.
_PEAK_NOISE, _RAN_NOISE = 0.05, 0.10


def half_precision(entries: Sequence[Entry]) -> Column:
    """1 where a row says fp16: Megatron's recipe then keeps other states (suite/planner/formulas/recipes.py)."""
    return np.array([float("fp16" in entry.cells.get("precision", "").lower()) for entry in entries])


def fit_memory(entries: Sequence[Entry]) -> dict[str, float]:
    """The most probable parameters of the memory model; priors alone where nothing was measured."""
    from scipy.optimize import least_squares

    names = list(MEMORY_PRIORS)
    centre = np.log([MEMORY_PRIORS[name][0] for name in names])
    spread = np.array([MEMORY_PRIORS[name][1] for name in names])
    seen = [entry for entry in entries if entry.job and entry.peak_memory_bytes]
    ran = [entry for entry in entries if entry.job and entry.step_seconds and entry.cells.get("act_ckpt")]

    def residuals(vector: np.ndarray) -> np.ndarray:
        p = dict(zip(names, np.exp(vector), strict=True))
        parts = [(vector - centre) / spread]
        if seen:
            peaks = np.array([entry.peak_memory_bytes or 0.0 for entry in seen])
            parts.append(np.log(predicted_peaks(seen, p) / peaks) / _PEAK_NOISE)
        if ran:
            capacity = np.array([(entry.job or {})["capacity"] for entry in ran])
            over = np.log((predicted_peaks(ran, p) + OUTSIDE_ALLOCATOR) / capacity)
            parts.append(np.maximum(0, over) / _RAN_NOISE / np.sqrt(len(ran) / 10))
        return np.concatenate(parts)

    return dict(zip(names, np.exp(least_squares(residuals, centre).x).tolist(), strict=True))


def predicted_peaks(entries: Sequence[Entry], p: dict[str, float]) -> Column:
    """Predicted allocator peak of each entry, bytes."""
    return peak_bytes(Jobs.of([entry.job for entry in entries if entry.job]), p, half_precision(entries))
