"""The model's figures as the page's script draws them: numbers to place, with the text that the Markdown has."""

from __future__ import annotations

from typing import Any

from suite.report.charts import Chart
from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.ranking import Group, RankedRow
from suite.report.facts.scaling import Curve
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, interval
from suite.stats.intervals import Interval

#: What a row is filtered by, with what it is called; those that all rows share are not shown.
FACETS = {
    "size": "Size",
    "ranks": "Ranks",
    "backend": "Backend",
    "work": "Work",
    "kind": "Kind",
    "layout": "Layout",
    "precision": "Precision",
    "machine": "Machine",
    "scaling": "Scaling",
}


def row_data(row: Row, href: str, environment: int) -> dict[str, Any]:
    """``href``: of the bundle that stands for the row. ``environment``: its place among those of the page."""
    return {
        "n": row.number,
        "name": row.name,
        "size": visible(row.size),
        "ranks": row.ranks,
        "backend": visible(row.backend),
        "layout": visible(row.layout),
        "work": visible(f"{row.work.algorithm} on {row.work.family}"),
        "kind": row.setting.kind,
        "precision": row.setting.precision,
        "machine": row.setting.machine,
        "scaling": row.scaling,
        "variant": visible(row.variant),
        "track": row.setting.track,
        "runs": row.ok_runs,
        "doubts": _doubts(row),
        "href": href,
        "environment": environment,
    }


def _doubts(row: Row) -> list[str]:
    """In the words that the tables have: why a reader should look twice."""
    words = []
    if row.holds_suspect:
        words.append("suspect runs" if row.is_ranked else "all runs suspect, not ranked")
    if row.unsteady_runs:
        words.append("unsteady")
    if row.two_modes:
        words.append("two modes")
    if 0 < len(row.measured) < RUNS_TO_PUBLISH:
        words.append("too few runs to publish")
    return words


def chart_data(chart: Chart) -> dict[str, Any]:
    """As ``lines.js`` reads it: lines are lists of row, text and marks, these of key, value, bounds and text."""
    return {
        "name": chart.name,
        "title": chart.title,
        "unit": chart.unit,
        "right": chart.right,
        "limit": chart.limit,
        "keys": {name: {"text": key.text, "kind": key.kind, "ink": key.ink} for name, key in chart.keys.items()},
        "lines": [
            [line.row.number, line.text, [[one.key, one.value, one.low, one.high, one.text] for one in line.marks]]
            for line in chart.lines
        ],
    }


def ratio_data(model: ReportModel) -> list[dict[str, Any]]:
    """Of each row that is ranked against a better one: the ratio of the rates, whole and in the main phases."""
    return [
        _ratios(group, ranked)
        for group in model.ranking.groups
        for ranked in group.places
        if ranked is not group.places[0]
    ]


def _ratios(group: Group, ranked: RankedRow) -> dict[str, Any]:
    return {
        "row": ranked.row.number,
        "best": group.places[0].row.number,
        "where": f"{visible(group.size)}, {counted(group.ranks, 'rank')}",
        "parts": [
            _ratio("whole iteration", ranked.ratio, ranked.verdict),
            *(_ratio(one.name, one.ratio, one.verdict or "") for one in ranked.by_phase),
        ],
    }


def _ratio(name: str, ratio: Interval, verdict: str) -> list[Any]:
    return [name, ratio.value, ratio.low, ratio.high, verdict, interval(ratio, bound_digits=1)]


def curve_data(model: ReportModel) -> list[dict[str, Any]]:
    return [_curve(curve) for curve in model.scaling.curves]


def _curve(curve: Curve) -> dict[str, Any]:
    base = curve.base
    return {
        "kind": curve.kind,
        "base": base.number,
        "label": visible(f"{base.size} {base.backend} {base.strategy}"),
        "points": [
            {
                "row": point.row.number,
                "ranks": point.row.ranks,
                "eta": [point.eta.value, point.eta.low, point.eta.high, interval(point.eta, bound_digits=1)],
                "above": point.above_one,
            }
            for point in curve.points
        ],
    }
