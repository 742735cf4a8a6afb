"""`suite plan --check`: the model that answers against published rows, kind by kind, with its bands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from pydantic import Field

from suite.planner.chart import COLOURS, FONT, svg_document
from suite.planner.parameters import Parameters
from suite.spec.base import Frozen, printable
from tools.planner.entries import Unusable
from tools.planner.fits import fits
from tools.planner.iteration_fit import Table
from tools.planner.nested import Model, predictions, values_of
from tools.planner.published import LeftOut
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
                answer, _, _ = fits(entry, parameters.values)
        except (Unusable, ArithmeticError) as reason:
            left_out.append(LeftOut(entry.source, entry.config, str(reason)))
            continue
        rows.append(_fit_row(entry.source, entry.config, entry.model, entry.fits, answer))
    asked = [row for row in published.rows if ("fits", "fits", "fits") in row.values]
    if asked:
        table = Table.of(asked)
        with np.errstate(all="ignore"):
            told = table.predicted(parameters.values, parameters.effects).memory.training
        for row, answer in zip(asked, (told <= table.work.jobs.capacity).tolist(), strict=True):
            fitting = row.values["fits", "fits", "fits"] > 0
            rows.append(_fit_row(row.source, row.config, row.model, fitting, answer))
    return rows


def _fit_row(source: str, config: str, model: str, published: bool, predicted: bool) -> Row:
    return Row(
        source=source,
        config=config,
        model=model,
        kind="fits",
        published=float(published),
        predicted=float(predicted),
        error=float(published != predicted),
    )


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


def chart_of(check: Check) -> str:
    """Predicted over published seconds, both logarithmic, as SVG; lines at equality and at a tenth off."""
    pairs = [row for row in check.rows if row.kind not in ("fits", "memory")]
    side, margin = 520, 56
    values = [math.log10(value) for row in pairs for value in (row.published, row.predicted)] or [0.0, 1.0]
    low, high = math.floor(min(values)), math.ceil(max(values)) + (1 if min(values) == max(values) else 0)

    def right(value: float) -> float:
        return margin + (math.log10(value) - low) / max(high - low, 1) * side

    def up(value: float) -> float:
        return margin + side - (right(value) - margin)

    sources = list(dict.fromkeys(row.source for row in pairs))
    body = [f'<rect x="{margin}" y="{margin}" width="{side}" height="{side}" fill="none" stroke="#999"/>']
    for factor, dash in ((1.0, ""), (1.1, ' stroke-dasharray="3 3"'), (0.9, ' stroke-dasharray="3 3"')):
        ends = (10**low, 10**low * factor, 10**high, 10**high * factor)
        body.append(
            f'<line x1="{right(ends[0]):.1f}" y1="{up(ends[1]):.1f}" x2="{right(ends[2]):.1f}" y2="{up(ends[3]):.1f}" '
            f'stroke="#777"{dash}/>'
        )
    for row in pairs:
        colour = COLOURS[sources.index(row.source) % len(COLOURS)]
        body.append(
            f'<circle cx="{right(row.published):.1f}" cy="{up(row.predicted):.1f}" r="3" fill="{colour}" '
            f'fill-opacity="0.6"><title>{escape(f"{row.source} {row.config}")} {100 * row.error:.1f} %</title></circle>'
        )
    for index, source in enumerate(sources):
        y = margin + 14 + 16 * index
        body.append(f'<circle cx="{margin + side + 20}" cy="{y - 4}" r="4" fill="{COLOURS[index % len(COLOURS)]}"/>')
        body.append(f'<text x="{margin + side + 30}" y="{y}" {FONT}>{escape(source)}</text>')
    body.append(f'<text x="{margin}" y="30" {FONT}>predicted over published seconds</text>')
    return svg_document(margin * 2 + side + 180, margin * 2 + side, body)
