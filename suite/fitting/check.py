"""The planner against published rows: errors of step time and memory, and whether a job fits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from suite.fitting.entries import Entry, Unusable
from suite.fitting.fit import Fitted, Rows
from suite.fitting.fits import fits
from suite.fitting.memory_fit import predicted_peaks
from suite.fitting.published import Collection, LeftOut
from suite.fitting.rl_check import RLPrediction, rl_predictions
from suite.fitting.rl_rows import RLRow
from suite.planner.parameters import NAMES, Parameters
from suite.planner.rl_parameters import RLBand, RLParameters, load_rl_parameters
from suite.spec.base import Frozen


class Errors(Frozen):
    """Absolute relative errors as fractions; ``None`` where there is no row."""

    rows: int
    median: float | None
    p90: float | None


class Confusion(Frozen):
    """How often a job that fits was predicted to fit, and so on."""

    rows: int
    accuracy: float | None
    fits_as_fits: int
    fits_as_too_large: int
    too_large_as_fits: int
    too_large_as_too_large: int


class Verdict(Frozen):
    """What the check says of one source or of all."""

    step_time: Errors
    memory: Errors
    fit: Confusion
    left_out: dict[str, int]


class Row(Frozen):
    """One prediction beside what was published: seconds, or bytes, or whether it fits (1 or 0)."""

    source: str
    config: str
    model: str
    kind: str
    published: float
    predicted: float
    error: float
    low: float | None = Field(default=None, description="lower end of the prediction's 80 % band")
    high: float | None = None


class Check(Frozen):
    """The whole check; ``rows`` are all predictions made."""

    overall: Verdict
    sources: dict[str, Verdict]
    rows: list[Row]
    left_out: list[dict[str, str]]
    rl: tuple[RLPrediction, ...] = ()


def fitted(parameters: Parameters) -> Fitted:
    """The parameters as a model of step time."""
    return Fitted(np.log([parameters.values[name] for name in NAMES]), parameters.effects)


def run_check(
    collection: Collection,
    parameters: Parameters,
    rl_rows: tuple[Sequence[RLRow], Sequence[LeftOut]] = ((), ()),
    rl: RLParameters | None = None,
) -> Check:
    """Predict every usable row; nothing in the rows can stop it. What cannot be predicted is left out, with why."""
    left_out = [*collection.left_out, *rl_rows[1]]
    known = rl or load_rl_parameters()
    rows = [
        *_banded(_step_rows(collection.entries, fitted(parameters), left_out), known.step_band),
        *_banded(_memory_rows(collection.entries, parameters.memory, left_out), known.bands.get("memory")),
        *_fit_rows(collection.entries, parameters.memory, left_out),
    ]
    sources = sorted({row.source for row in rows} | {entry.source for entry in left_out})
    return Check(
        overall=_verdict(rows, left_out),
        sources={
            source: _verdict(
                [row for row in rows if row.source == source],
                [entry for entry in left_out if entry.source == source],
            )
            for source in sources
        },
        rows=rows,
        left_out=[{"source": item.source, "config": item.config, "reason": item.reason} for item in left_out],
        rl=tuple(rl_predictions(rl_rows[0], parameters, known)) if rl_rows[0] else (),
    )


def errors_of(values: Sequence[float]) -> Errors:
    """Median and 90th percentile."""
    if not len(values):
        return Errors(rows=0, median=None, p90=None)
    return Errors(rows=len(values), median=float(np.median(values)), p90=float(np.quantile(values, 0.9)))


def _banded(rows: Sequence[Row], band: RLBand | None) -> list[Row]:
    if band is None:
        return list(rows)
    return [row.model_copy(update={"low": band.low * row.predicted, "high": band.high * row.predicted}) for row in rows]


def _step_rows(entries: Sequence[Entry], model: Fitted, left_out: list[LeftOut]) -> list[Row]:
    timed = [entry for entry in entries if entry.job and entry.step_seconds]
    if not timed:
        return []
    with np.errstate(all="ignore"):
        predicted = model.predict(Rows.of(timed))
    rows: list[Row] = []
    for entry, seconds in zip(timed, predicted.tolist(), strict=True):
        _add(rows, left_out, entry, "step_time", entry.step_seconds or 0.0, seconds)
    return rows


def _memory_rows(entries: Sequence[Entry], memory: dict[str, float], left_out: list[LeftOut]) -> list[Row]:
    seen = [entry for entry in entries if entry.job and entry.peak_memory_bytes]
    if not seen:
        return []
    rows: list[Row] = []
    with np.errstate(all="ignore"):
        peaks = predicted_peaks(seen, memory).tolist()
    for entry, peak in zip(seen, peaks, strict=True):
        _add(rows, left_out, entry, "memory", entry.peak_memory_bytes or 0.0, peak)
    return rows


def _fit_rows(entries: Sequence[Entry], memory: dict[str, float], left_out: list[LeftOut]) -> list[Row]:
    rows = []
    for entry in entries:
        if entry.fits is None:
            continue
        try:
            answer, _, _ = fits(entry, memory)
        except (Unusable, ArithmeticError) as reason:
            left_out.append(LeftOut(entry.source, entry.config, str(reason)))
            continue
        rows.append(
            Row(
                source=entry.source,
                config=entry.config,
                model=entry.model,
                kind="fit",
                published=float(entry.fits),
                predicted=float(answer),
                error=float(answer != entry.fits),
            )
        )
    return rows


def _add(rows: list[Row], left_out: list[LeftOut], entry: Entry, kind: str, published: float, predicted: float) -> None:
    """The row, unless its numbers are so odd that no error can be given."""
    error = abs(predicted / published - 1) if published > 0 and predicted > 0 else float("inf")
    if not np.isfinite(error):
        left_out.append(LeftOut(entry.source, entry.config, f"its numbers give no finite {kind.replace('_', ' ')}"))
        return
    rows.append(
        Row(
            source=entry.source,
            config=entry.config,
            model=entry.model,
            kind=kind,
            published=published,
            predicted=predicted,
            error=error,
        )
    )


def _verdict(rows: Sequence[Row], left_out: Sequence[LeftOut]) -> Verdict:
    reasons: dict[str, int] = {}
    for entry in left_out:
        reasons[entry.reason] = reasons.get(entry.reason, 0) + 1
    asked = [row for row in rows if row.kind == "fit"]
    pairs = [(row.published > 0, row.predicted > 0) for row in asked]
    return Verdict(
        step_time=errors_of([row.error for row in rows if row.kind == "step_time"]),
        memory=errors_of([row.error for row in rows if row.kind == "memory"]),
        fit=Confusion(
            rows=len(asked),
            accuracy=sum(a == b for a, b in pairs) / len(pairs) if pairs else None,
            fits_as_fits=pairs.count((True, True)),
            fits_as_too_large=pairs.count((True, False)),
            too_large_as_fits=pairs.count((False, True)),
            too_large_as_too_large=pairs.count((False, False)),
        ),
        left_out=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )
