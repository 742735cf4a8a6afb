"""The model's figures as the page's script draws them: numbers to place, with the text that the Markdown has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.ranking import Group, RankedRow
from suite.report.facts.scaling import Curve
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import GIB, counted, interval, number, percent
from suite.spec.phases import ALL
from suite.stats.intervals import Interval

#: A figure on the page: value, bounds or null, and what is written for it.
Figure = tuple[float, float | None, float | None, str]
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


@dataclass(frozen=True)
class Metric:
    """What can be chosen to be drawn of every row. ``better``: which way a good figure lies, for the axis' label."""

    key: str
    label: str
    unit: str
    better: str
    read: Callable[[Row], Figure | None]


def _bounded(estimate: Interval | None, digits: int = 2, scale: float = 1.0) -> Figure | None:
    """With the text of a column that shows bounds."""
    if estimate is None:
        return None
    one = estimate.scaled(scale)
    return one.value, one.low, one.high, interval(one, bound_digits=digits)


def _alone(value: float | None, text: str) -> Figure | None:
    return None if value is None else (value, None, None, text)


def _percent(ratio: float | None) -> Figure | None:
    return None if ratio is None else (100 * ratio, None, None, percent(ratio))


def _phase(name: str) -> Callable[[Row], Figure | None]:
    def read(row: Row) -> Figure | None:
        cost = next((one for one in row.phases if one.name == name), None)
        return _bounded(cost.interval, 1) if cost else None

    return read


def _peak(row: Row) -> Figure | None:
    return _alone(row.memory.peak_bytes / GIB, number(row.memory.peak_bytes / GIB)) if row.memory else None


def _floor(row: Row) -> Figure | None:
    floor = row.memory.floor_bytes if row.memory else None
    return None if floor is None else (floor / GIB, None, None, number(floor / GIB))


def _joules(row: Row) -> Figure | None:
    valid = row.energy is not None and row.energy.valid
    return _alone(row.energy.joules_per_sample, number(row.energy.joules_per_sample)) if row.energy and valid else None


METRICS: tuple[Metric, ...] = (
    Metric("samples", "throughput", "samples/s", "more", lambda row: _bounded(row.samples_per_second)),
    Metric("tokens", "throughput", "tokens/s", "more", lambda row: _bounded(row.tokens_per_second)),
    Metric(
        "per_device", "throughput", "tokens/s/device", "more", lambda row: _bounded(row.tokens_per_second_per_device)
    ),
    Metric(
        "iteration", "iteration", "s", "less", lambda row: _alone(row.iteration_seconds, number(row.iteration_seconds))
    ),
    *(Metric(f"phase_{one.name}", f"phase {one.label}", "s", "less", _phase(one.name)) for one in ALL),
    Metric(
        "idle", "idle", "% of an iteration", "less",
        lambda row: _percent(row.idle.share if row.idle else None),
    ),
    Metric(
        "memory", "memory, mean of the runs' peaks", "GiB", "less",
        lambda row: _bounded(row.memory.run_peak_bytes, 1, 1 / GIB) if row.memory else None,
    ),
    Metric("peak", "memory, greatest peak", "GiB", "less", _peak),
    Metric("floor", "memory, theoretical floor", "GiB", "", _floor),
    Metric(
        "floor_share", "memory, floor over peak", "%", "more",
        lambda row: _percent(row.memory.efficiency if row.memory else None),
    ),
    *(
        Metric(key, key.upper(), "%", "more", lambda row, key=key: _percent(getattr(row, key)))  # type: ignore[misc]
        for key in ("mfu", "hfu", "mbu")
    ),
    Metric("joules", "energy", "J/sample", "less", _joules),
)  # fmt: skip


def metrics_of(model: ReportModel) -> list[dict[str, str]]:
    """Those that any row has."""
    return [
        {"key": one.key, "label": one.label, "unit": one.unit, "better": one.better}
        for one in METRICS
        if any(one.read(row) is not None for row in model.rows)
    ]


def row_data(row: Row, href: str, environment: int) -> dict[str, Any]:
    """``href``: of the bundle that stands for the row. ``environment``: its place among those of the page."""
    figures = {metric.key: figure for metric in METRICS if (figure := metric.read(row)) is not None}
    return {
        "n": row.number,
        "name": row.name,
        "size": visible(row.size),
        "parameters": row.parameters,
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
        "without": "" if row.measured else row.without_rate,
        "doubts": _doubts(row),
        "href": href,
        "environment": environment,
        "figures": figures,
        "predicted": _bounded(row.expected.rate) if row.expected else None,
        "phases": [[one.name, one.seconds, one.share, _phase_text(one.interval, one.share)] for one in row.phases],
        "overlapping": row.setting.asynchronous,
        "floors": _phase_memory(row),
    }


def _phase_text(seconds: Interval, share: float | None) -> str:
    """As the section on phases has it."""
    return interval(seconds, bound_digits=1) + ("" if share is None else f" ({percent(share)} %)")


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


def _phase_memory(row: Row) -> list[list[Any]]:
    """Phase, mean of the runs' peaks with its bounds, floor, and the text of the table: in GiB."""
    if not row.memory:
        return []
    found: list[list[Any]] = []
    for one in row.memory.by_phase:
        mean = one.run_peak_bytes.scaled(1 / GIB)
        share = "" if one.efficiency is None else f" ({percent(one.efficiency)} %)"
        floor = None if one.floor_bytes is None else one.floor_bytes / GIB
        found.append([one.name, mean.value, mean.low, mean.high, floor, interval(mean, bound_digits=1) + share])
    return found


def ratio_data(model: ReportModel) -> list[dict[str, Any]]:
    """Of each row that is ranked against a better one: the ratio of the rates, whole and in the main phases."""
    return [
        _ratios(group, ranked)
        for group in model.ranking.groups
        for ranked in group.places
        if ranked is not group.places[0]
    ]


def _ratios(group: Group, ranked: RankedRow) -> dict[str, Any]:
    ratio = ranked.ratio
    whole = ["whole iteration", ratio.value, ratio.low, ratio.high, ranked.verdict, interval(ratio, bound_digits=1)]
    parts = [
        [
            one.name,
            one.ratio.value,
            one.ratio.low,
            one.ratio.high,
            one.verdict or "",
            interval(one.ratio, bound_digits=1),
        ]
        for one in ranked.by_phase
    ]
    return {
        "row": ranked.row.number,
        "best": group.places[0].row.number,
        "where": f"{visible(group.size)}, {counted(group.ranks, 'rank')}",
        "parts": [whole, *parts],
    }


def curve_data(model: ReportModel) -> list[dict[str, Any]]:
    """Curves as the section on scaling has them."""
    return [_curve(curve) for curve in model.scaling.curves]


def _curve(curve: Curve) -> dict[str, Any]:
    base = curve.base
    return {
        "kind": curve.kind,
        "base": base.number,
        "label": visible(f"{base.size} {base.backend} {base.strategy}"),
        "points": [
            {"row": point.row.number, "ranks": point.row.ranks, "eta": _bounded(point.eta, 1), "above": point.above_one}
            for point in curve.points
        ],
    }
