"""Histories as SVG: points with their intervals, levels, and where these changed. Numbers alone go in unescaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import decimals, interval, moment, number
from suite.report.site.history import Point, Series

_WIDTH, _HEIGHT = 960, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 40
_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_MARGIN = 180, 36, 3
_MARGIN = 0.06
_MOST_DATES = 8


@dataclass(frozen=True)
class _Scale:
    """From values to places on the picture, in its own units."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def picture(series: Series) -> Markup:
    """The whole history: rates in samples per second over the points in the order of time, evenly spaced."""
    points = series.points
    x, y = _scales(series, (_LEFT, _WIDTH - _RIGHT), (_HEIGHT - _BOTTOM, _TOP))
    parts = [
        Markup('<svg class="history" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            _WIDTH, _HEIGHT, visible(f"Samples per second of {series.name}, {len(points)} points in time")
        )
    ]
    parts += [*_grid(y), *_dates(points, x), *_doubt(series, x), *_levels(series, x, y)]
    parts += [_mark(point, place, x, y) for place, point in enumerate(points)]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def spark(series: Series) -> Markup:
    """The history in small: its points, its levels, and its changes."""
    points, margin = series.points, _SPARK_MARGIN
    x, y = _scales(series, (margin, _SPARK_WIDTH - margin), (_SPARK_HEIGHT - margin, margin), with_bounds=False)
    dots = [
        Markup('<circle class="dot" cx="{}" cy="{}" r="1.5"/>').format(_place(x(place)), _place(y(point.rate.value)))
        for place, point in enumerate(points)
        if point.rate is not None
    ]
    marks = [
        Markup('<circle class="{}" cx="{}" cy="{}" r="3"/>').format(
            change.direction, _place(x(change.after)), _place(y(series.levels[number + 1]))
        )
        for number, change in enumerate(series.changes)
    ]
    return Markup('<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>').format(
        _SPARK_WIDTH,
        _SPARK_HEIGHT,
        f"{len(points)} points, {len(series.changes)} changes of level",
        Markup("").join(dots),
        Markup("").join(_levels(series, x, y)),
        Markup("").join(marks),
    )


def _scales(
    series: Series, width: tuple[float, float], height: tuple[float, float], with_bounds: bool = True
) -> tuple[_Scale, _Scale]:
    rates = [point.rate for point in series.points if point.rate is not None]
    values = [rate.value for rate in rates]
    if with_bounds:
        values += [bound for rate in rates for bound in (rate.low, rate.high) if bound is not None]
        # a run of few iterations may have bounds that would flatten everything else
        middle = sorted(rate.value for rate in rates)
        least, most = middle[0] / 2, middle[-1] * 2
        values = [min(max(value, least), most) for value in values]
    low, high = min(values), max(values)
    room = max(high - low, 0.02 * high) * _MARGIN
    low, high = low - room, high + room
    last = max(len(series.points) - 1, 1)
    return _Scale(-0.5, last + 0.5, *width), _Scale(low, high, *height)


def _place(value: float) -> str:
    return f"{value:.1f}"


def _grid(y: _Scale) -> list[Markup]:
    steps = _steps(y.low, y.high)
    digits = decimals(steps[1] - steps[0], 1) if len(steps) > 1 else decimals(y.high)
    line = Markup('<path class="grid" d="M{} {}H{}"/><text class="tick" x="{}" y="{}">{}</text>')
    return [
        line.format(_LEFT, _place(y(step)), _WIDTH - _RIGHT, _LEFT - 6, _place(y(step) + 4), f"{step:,.{digits}f}")
        for step in steps
    ]


def _steps(low: float, high: float) -> list[float]:
    """Round values within, five or so."""
    rough = (high - low) / 5
    power = 10.0 ** (len(f"{int(1 / rough)}") * -1 if rough < 1 else len(f"{int(rough)}") - 1)
    step = next(factor * power for factor in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if factor * power >= rough)
    first = int(low // step) + 1
    return [index * step for index in range(first, int(high // step) + 1)]


def _dates(points: Sequence[Point], x: _Scale) -> list[Markup]:
    """The day of the first point, and then of one in so many."""
    every = max(1, -(-len(points) // _MOST_DATES))
    return [
        Markup('<text class="date" x="{}" y="{}">{}</text>').format(
            _place(x(place)), _HEIGHT - _BOTTOM + 22, moment(points[place].started)[:10]
        )
        for place in range(0, len(points), every)
    ]


def _doubt(series: Series, x: _Scale) -> list[Markup]:
    """Where each change may be, and where it most likely is."""
    parts = []
    for change in series.changes:
        first, last = x(change.first - 0.5), x(change.last - 0.5)
        if change.first == change.last:
            first, last = first - 3, last + 3
        band = Markup(
            '<rect class="doubt {}" x="{}" y="{}" width="{}" height="{}"/><path class="at {}" d="M{} {}V{}"/>'
        )
        parts.append(
            band.format(
                change.direction,
                _place(first),
                _TOP,
                _place(last - first),
                _HEIGHT - _BOTTOM - _TOP,
                change.direction,
                _place(x(change.after - 0.5)),
                _TOP,
                _HEIGHT - _BOTTOM,
            )
        )
    return parts


def _levels(series: Series, x: _Scale, y: _Scale) -> list[Markup]:
    edges = [0, *(change.after for change in series.changes), len(series.points)]
    return [
        Markup('<path class="level" d="M{} {}H{}"/>').format(
            _place(x(low - 0.4)), _place(y(level)), _place(x(high - 0.6))
        )
        for (low, high), level in zip(pairwise(edges), series.levels, strict=True)
    ]


def _mark(point: Point, place: int, x: _Scale, y: _Scale) -> Markup:
    """A point with its interval, and a title for whoever points at it."""
    rate = point.rate
    assert rate is not None, "only points with a rate are drawn"
    bar = Markup("")
    if rate.low is not None and rate.high is not None:
        low, high = (_place(y(min(max(bound, y.low), y.high))) for bound in (rate.low, rate.high))
        bar = Markup('<path class="bar" d="M{} {}V{}"/>').format(_place(x(place)), low, high)
    return Markup('<g class="point" data-place="{}">{}<circle cx="{}" cy="{}" r="4"/><title>{}</title></g>').format(
        place, bar, _place(x(place)), _place(y(rate.value)), escape(visible(told(point), 400))
    )


def told(point: Point) -> str:
    """A point in one line."""
    runs = len(point.measured)
    return (
        f"{moment(point.started)}: {interval(point.rate)} samples/s, {number(runs)} run{'s' * (runs != 1)}, "
        f"{point.folder}"
    )
