"""`suite plan --check`: the model that answers against published rows, kind by kind, with its bands."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from suite.planner.parameters import Parameters
from suite.spec.base import Frozen, printable
from tools.planner.entries import Entry, Unusable
from tools.planner.fits import fits
from tools.planner.iteration_fit import Table
from tools.planner.nested import Model, predictions, values_of
from tools.planner.published import LeftOut
from tools.planner.rl_rows import RLRow
from tools.planner.rows import Published, read
from tools.planner.step_fit import Fitted


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


class Errors(Frozen):
    """Absolute relative errors as fractions, and the share of rows inside their bands; of fits that are right."""

    rows: int
    median: float
    p90: float
    inside: float | None


class Check(Frozen):
    """The whole check, by kind of prediction and by source; ``rows`` are all predictions made."""

    overall: dict[str, Errors]
    sources: dict[str, dict[str, Errors]]
    rows: list[Row]
    left_out: list[dict[str, str]]


def model_of(parameters: Parameters) -> Model:
    """Fitted parameters as the fit has them."""
    return Model(parameters.values, parameters.effects, Fitted(parameters.values, parameters.effects))


def run_check(files: Sequence[Path], parameters: Parameters) -> Check:
    """Predict every usable row; nothing in the rows can stop it. What cannot be predicted is left out, with why."""
    return check_of(read(files), parameters)


def check_of(published: Published, parameters: Parameters) -> Check:
    """The same of rows that were read."""
    left_out = list(published.left_out)
    rows = []
    values = values_of(published)
    for value, predicted in zip(values, predictions(published, model_of(parameters)).tolist(), strict=True):
        error = abs(predicted / value.measured - 1) if value.measured > 0 and predicted > 0 else math.inf
        if not math.isfinite(error):
            left_out.append(LeftOut(value.source, value.config, f"its numbers give no finite {value.kind}"))
            continue
        known = any(stack.split("|")[0] == value.stack for stack in parameters.stacks)
        band = parameters.bands[value.kind].known if known or value.kind == "step" else parameters.bands[value.kind].new
        rows.append(
            Row(
                **{name: getattr(value, name) for name in ("source", "config", "model", "kind")},
                published=value.measured,
                predicted=predicted,
                error=error,
                low=predicted * band.low,
                high=predicted * band.high,
            )
        )
    rows += _fit_rows(published, parameters, left_out)
    sources = sorted({row.source for row in rows})
    return Check(
        overall=_by_kind(rows),
        sources={source: _by_kind([row for row in rows if row.source == source]) for source in sources},
        rows=rows,
        left_out=[{"source": one.source, "config": one.config, "reason": one.reason} for one in left_out],
    )


def _fit_rows(published: Published, parameters: Parameters, left_out: list[LeftOut]) -> list[Row]:
    """Whether configurations fit, of plain training and of the side of an iteration that trains."""
    rows = []
    for entry in published.entries:
        if entry.fits is None:
            continue
        try:
            with np.errstate(all="ignore"):
                answer = fits(entry, parameters.values)
        except (Unusable, ArithmeticError) as reason:
            left_out.append(LeftOut(entry.source, entry.config, str(reason)))
            continue
        rows.append(_fit_row(entry, entry.fits, answer))
    asked = [row for row in published.rows if ("fits", "fits", "fits") in row.values]
    if asked:
        table = Table.of(asked)
        with np.errstate(all="ignore"):
            told = table.predicted(parameters.values, parameters.effects).memory.training
        for row, answer in zip(asked, (told <= table.work.jobs.capacity).tolist(), strict=True):
            fitting = row.values["fits", "fits", "fits"] > 0
            rows.append(_fit_row(row, fitting, answer))
    return rows


def _fit_row(of: Entry | RLRow, published: bool, predicted: bool) -> Row:
    named = {name: getattr(of, name) for name in ("source", "config", "model")}
    error = float(published != predicted)
    return Row(**named, kind="fits", published=float(published), predicted=float(predicted), error=error)


def _by_kind(rows: Sequence[Row]) -> dict[str, Errors]:
    return {kind: _errors([row for row in rows if row.kind == kind]) for kind in sorted({row.kind for row in rows})}


def _errors(rows: Sequence[Row]) -> Errors:
    found = [row.error for row in rows]
    inside = [row.low <= row.published <= row.high for row in rows if row.low is not None and row.high is not None]
    share = float(np.mean(inside)) if inside else 1 - float(np.mean(found))
    return Errors(rows=len(rows), median=float(np.median(found)), p90=float(np.quantile(found, 0.9)), inside=share)


def check_lines(check: Check) -> Iterator[str]:
    """Errors by source and kind and overall, and how many rows were left out for which reason."""
    yield f"{'source':<26} {'what':<12} {'rows':>5} {'median / 90th':>16} {'in band':>8}"
    for source, kinds in (*check.sources.items(), ("all", check.overall)):
        for kind, errors in kinds.items():
            name = f"{printable(source)[:26]:<26} {kind:<12} {errors.rows:>5}"
            if kind == "fits":
                yield f"{name} {100 * (errors.inside or 0):>10.0f} % right"
                continue
            told = f"{100 * errors.median:.1f} / {100 * errors.p90:.1f} %"
            yield f"{name} {told:>16} {100 * (errors.inside or 0):>6.0f} %"
    for reason, count in Counter(one["reason"] for one in check.left_out).most_common():
        yield f"left out {count:>5}: {printable(reason)}"
