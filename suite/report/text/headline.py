"""The report for programs and terminals: the headline table as plain cells, and everything as JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import UNKNOWN, gib, interval, number
from suite.report.text.summary import sentences
from suite.spec.base import Frozen

REPORT_SCHEMA = "suite/report/1"
_NAME_LENGTH = 24


def rows(model: ReportModel) -> list[dict[str, str]]:
    """One dictionary of title -> cell per row of the report, all with the same titles in the same order.

    Cells are plain text without control characters; a terminal's own markup is the caller's to escape.
    """
    verdicts = {
        ranked.row.number: ranked.verdict + (" (provisional)" if ranked.provisional else "")
        for group in model.ranking.groups
        for ranked in group.places
    }
    etas = {point.row.number: point.eta for curve in model.scaling.curves for point in curve.points}
    return [_cells(row, verdicts.get(row.number, UNKNOWN), interval(etas.get(row.number), 1)) for row in model.rows]


def as_json(model: ReportModel) -> dict[str, Any]:
    """The whole model with its three sentences, for ``json.dumps``; a row within another part is its number."""
    body = {field.name: _plain(getattr(model, field.name)) for field in fields(model) if field.name != "rows"}
    rows = [{field.name: _plain(getattr(row, field.name)) for field in fields(row)} for row in model.rows]
    return {"schema": REPORT_SCHEMA, "summary": list(sentences(model)), "rows": rows, **body}


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.number
    if isinstance(value, Frozen):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(part) for part in value] if isinstance(value, (tuple, list)) else value


def _cells(row: Row, verdict: str, eta: str) -> dict[str, str]:
    return {
        "size": visible(row.size, _NAME_LENGTH),
        "ranks": str(row.ranks),
        "backend": visible(row.backend, _NAME_LENGTH),
        "layout": row.layout,
        "runs ok": f"{row.runs_ok} of {row.runs}",
        "samples/s [95 %]": interval(row.samples_per_second) if row.measured else "failed",
        "tokens/s": number(row.tokens_per_second.value if row.tokens_per_second else None),
        "peak GiB": gib(row.memory.peak_bytes if row.memory else None),
        "eta": eta,
        "verdict": verdict,
    }
