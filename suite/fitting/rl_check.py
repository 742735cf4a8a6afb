"""Published RL rows beside their predictions: phases, whole iterations, weight synchronisation, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from suite.fitting.rl_fit import Table, predictions, with_effects
from suite.fitting.rl_rows import RLRow
from suite.planner.parameters import Parameters
from suite.planner.rl_iteration import predict
from suite.planner.rl_parameters import RLParameters
from suite.spec.base import Frozen


class RLPrediction(Frozen):
    """One prediction beside what was published, seconds or bytes or whether it fits; ``low`` and ``high`` are its 80 %
    band, ``None`` where there is none."""

    source: str
    config: str
    model: str
    stack: str
    metric: str
    kind: str
    published: float
    predicted: float
    error: float
    low: float | None = None
    high: float | None = None
    inside: bool | None = None


def rl_predictions(rows: Sequence[RLRow], parameters: Parameters, rl: RLParameters) -> list[RLPrediction]:
    """Every measured value of the rows, predicted; values without a finite prediction are left out."""
    if not rows:
        return []
    table = Table.of(rows)
    with np.errstate(all="ignore"):
        seconds = predictions(table, parameters, rl).tolist()
        fits = predict(with_effects(table, rl.effects), parameters, rl)
    found = []
    for each, value in zip(table.measured, seconds, strict=True):
        if not (np.isfinite(value) and value > 0):
            continue
        band = rl.bands.get(each.kind)
        low, high = (value * band.low, value * band.high) if band else (None, None)
        found.append(
            RLPrediction(
                **_names(rows[each.row]),
                metric=each.metric,
                kind=each.kind,
                published=each.value,
                predicted=value,
                error=abs(value / each.value - 1),
                low=low,
                high=high,
                inside=None if low is None or high is None else low <= each.value <= high,
            )
        )
    enough = (fits.memory["training"] <= fits.capacity).tolist()
    for row, answer in zip(rows, enough, strict=True):
        published = row.values.get(("fits", "fits", "fits"))
        if published is not None:
            found.append(
                RLPrediction(
                    **_names(row),
                    metric="fits",
                    kind="fits",
                    published=published,
                    predicted=float(answer),
                    error=float(answer != (published > 0)),
                )
            )
    return found


def _names(row: RLRow) -> dict[str, Any]:
    return {"source": row.source, "config": row.config, "model": row.model, "stack": row.stack}
