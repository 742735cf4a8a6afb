"""Histories to draw (``templates/chart.html.jinja``): points, levels, and where these changed, at their places."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, decimals, interval, moment
from suite.report.site.history import LevelChange, Point, Series

#: Where a history is drawn, in pixels: on a page of its own, and small in a table, where intervals would hide changes.
_LARGE = {"width": 960, "height": 320, "left": 64, "right": 948, "top": 14, "bottom": 280}
_SMALL = {"width": 180, "height": 36, "left": 3, "right": 177, "top": 3, "bottom": 33}
_MARGIN = 0.06
_MOST_DATES = 8


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def picture(series: Series, box: Mapping[str, int] = _LARGE) -> dict[str, Any]:
    """The whole history: rates in samples per second over the points in the order of time, evenly spaced."""
    points = series.points
    x, y = _scales(series, box)
    every = max(1, -(-len(points) // _MOST_DATES))
    return {
        "box": box,
        "label": visible(f"Samples per second of {series.name}, {len(points)} points in time"),
        "grid": [(y(step), text) for step, text in _steps(y)],
        "dates": [(x(place), moment(points[place].started)[:10]) for place in range(0, len(points), every)],
        "doubts": [_doubt(change, x) for change in series.changes],
        "levels": _levels(series, x, y),
        "points": [_point(point, place, x, y) for place, point in enumerate(points)],
    }


def spark(series: Series) -> dict[str, Any]:
    return picture(series, _SMALL)


def _scales(series: Series, box: Mapping[str, int]) -> tuple[_Scale, _Scale]:
    rates = [point.rate for point in series.points if point.rate is not None]
    values = [rate.value for rate in rates]
    if box is _LARGE:
        # a run of few iterations may have bounds that would flatten everything else
        least, most = min(values) / 2, max(values) * 2
        bounds = [bound for rate in rates for bound in (rate.low, rate.high) if bound is not None]
        values += [min(max(bound, least), most) for bound in bounds]
    low, high = min(values), max(values)
    room = max(high - low, 0.02 * high) * _MARGIN
    last = max(len(series.points) - 1, 1)
    x = _Scale(-0.5, last + 0.5, box["left"], box["right"])
    return x, _Scale(low - room, high + room, box["bottom"], box["top"])


def _steps(y: _Scale) -> list[tuple[float, str]]:
    """Round values within, five or so, as they are written."""
    rough = (y.high - y.low) / 5
    power = 10.0 ** (len(f"{int(1 / rough)}") * -1 if rough < 1 else len(f"{int(rough)}") - 1)
    step = next(factor * power for factor in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if factor * power >= rough)
    steps = [index * step for index in range(int(y.low // step) + 1, int(y.high // step) + 1)]
    digits = decimals(steps[1] - steps[0], 1) if len(steps) > 1 else decimals(y.high)
    return [(one, f"{one:,.{digits}f}") for one in steps]


def _doubt(change: LevelChange, x: _Scale) -> tuple[str, float, float, float]:
    """Where a change may be, from and how wide, and where it most likely is."""
    start, end = x(change.first - 0.5), x(change.last - 0.5)
    if change.first == change.last:
        start, end = start - 3, end + 3
    return change.direction, start, round(end - start, 1), x(change.after - 0.5)


def _levels(series: Series, x: _Scale, y: _Scale) -> list[tuple[float, float, float]]:
    edges = [0, *(change.after for change in series.changes), len(series.points)]
    return [
        (x(low - 0.4), y(level), x(high - 0.6))
        for (low, high), level in zip(pairwise(edges), series.levels, strict=True)
    ]


def _point(point: Point, place: int, x: _Scale, y: _Scale) -> dict[str, Any]:
    """With its interval, as far as it is on the picture, and what is said to whoever points at it."""
    rate = point.rate
    assert rate is not None, "only points with a rate are drawn"
    bounds = None if rate.low is None or rate.high is None else (y(rate.low), y(rate.high))
    said = f"{moment(point.started)}: {interval(rate)} samples/s, {counted(len(point.measured), 'run')}, {point.folder}"
    return {"x": x(place), "y": y(rate.value), "bounds": bounds, "said": visible(said, 400)}
