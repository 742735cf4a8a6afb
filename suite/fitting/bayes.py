"""Bayesian updating of a model's constants by measurements: the most probable values, and how sure they are.

Constants are positive and known up to a factor beforehand, so that their logarithms are normal; so are those of
measured over predicted. Around the most probable values the posterior is normal too (Laplace's approximation: MacKay,
"Information Theory, Inference, and Learning Algorithms", 2003, chapter 27).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Vector = np.ndarray
#: Takes logarithms of constants to logarithms of predictions.
Model = Callable[[Vector], Vector]
_DIFFERENCE = 1e-4
_MOST_STEPS = 50
#: Of a normal distribution four fifths lie within so many deviations.
FOUR_FIFTHS = 1.2816


@dataclass(frozen=True)
class Known:
    """Logarithms of constants: the most probable ones, [K], and their covariance, [K, K]."""

    mean: Vector
    covariance: Vector

    @classmethod
    def before(cls, centres: Sequence[float], spreads: Sequence[float]) -> "Known":
        """Each within a factor exp(spread) of its centre, two times in three."""
        return cls(np.log(np.asarray(centres, dtype=float)), np.diag(np.asarray(spreads, dtype=float) ** 2))

    def deviation(self, model: Model, noise: float = 0.0) -> Vector:
        """Standard deviations of the logarithms that ``model`` predicts, ``noise`` of a measurement in."""
        found = slopes(model, self.mean)
        return np.sqrt(np.einsum("ij,jk,ik->i", found, self.covariance, found) + noise**2)


def updated(known: Known, model: Model, measured: Vector, noise: float | Vector) -> Known:
    """What is known after logarithms of measurements, [N], with this relative ``noise``, of all or of each.

    Gauss-Newton steps, halved where they would go uphill.
    """
    inverse = np.linalg.inv(known.covariance)
    each = np.broadcast_to(np.asarray(noise, dtype=float), measured.shape)
    mean = known.mean.copy()

    def loss(vector: Vector) -> float:
        away, off = vector - known.mean, (model(vector) - measured) / each
        return float(away @ inverse @ away + off @ off)

    now = loss(mean)
    for _ in range(_MOST_STEPS):
        found = slopes(model, mean) / each[:, None]
        off = (measured - model(mean)) / each
        step = np.linalg.solve(inverse + found.T @ found, found.T @ off - inverse @ (mean - known.mean))
        while (after := loss(mean + step)) > now and np.abs(step).max() > 1e-9:
            step = step / 2
        mean = mean + step
        if now - after < 1e-9 * max(1.0, now):
            break
        now = after
    found = slopes(model, mean) / each[:, None]
    return Known(mean, np.linalg.inv(inverse + found.T @ found))


def slopes(model: Model, vector: Vector) -> Vector:
    """Derivatives of the predictions by the constants, [N, K]."""
    base = model(vector)
    columns = []
    for index in range(len(vector)):
        moved = vector.copy()
        moved[index] += _DIFFERENCE
        columns.append((model(moved) - base) / _DIFFERENCE)
    return np.column_stack(columns)
