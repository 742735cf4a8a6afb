"""Charts with a line for each row, as ``suite.report.charts`` describes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from suite.report.charts import Chart, Key, Line, Mark
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import drawable
from suite.report.formatting.numbers import counted
from suite.report.plots import style
from suite.report.plots.style import backend_colours, bars
from suite.spec.phases import ALL

#: relative luminance (WCAG 2.1) below which white ink reads better than dark
_DARK_BELOW = 0.26
_LEAST_LABELLED = 0.06
_PHASES = {phase.name: phase.colour for phase in ALL}
_LOOKS: dict[str, dict[str, Any]] = {
    "bar": {"marker": "s", "markersize": 7},
    "band": {"linewidth": 7},
    "tick": {"marker": "|", "markersize": 9, "markeredgewidth": 2},
    "dot": {"marker": "o", "markersize": 5.5},
}


def figure(chart: Chart, model: ReportModel) -> Figure | None:
    """Null where there is no row to draw."""
    shown = [line for line in chart.lines if not chart.drawn or any(mark.key == chart.drawn for mark in line.marks)]
    if not any(line.marks for line in shown):
        return None
    rows, omitted = bars([line.row for line in shown])
    line_of = {line.row.number: line for line in shown}
    lines = [line_of[row.number] for row in rows]
    heights, colours = _heights(rows), backend_colours(model.rows)
    drawn = style.new_figure(1.2 + 0.23 * max(heights))
    axes = drawn.subplots()
    for line, height in zip(lines, heights, strict=True):
        _line(axes, chart.keys, line, height, colours[line.row.backend])
    _labels(axes, rows, heights)
    handles = _handles(chart.keys, lines)
    is_share = any(key.kind == "bar" for key in chart.keys.values())
    if is_share:
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        handles += _log_axis(axes, chart, lines)
    is_told = any(line.text and line.marks for line in lines)
    axes.set_xlabel("".join((chart.unit, "" if is_share else " (log)", f"; right: {chart.right}" if is_told else "")))
    style.frame(drawn, handles, omitted)
    return drawn


def _heights(rows: Sequence[Row]) -> list[float]:
    """Of the lines from the top down, with a gap wherever the size or the kind of work changes."""
    heights, height = [], 0.0
    for before, row in zip([rows[0], *rows[:-1]], rows, strict=True):
        height += 0.7 if (before.work, before.size) != (row.work, row.size) else 0.0
        heights.append(height)
        height += 1.0
    return heights


def _labels(axes: Axes, rows: Sequence[Row], heights: Sequence[float]) -> None:
    """What names each row, its layout where rows differ in it alone, left of its line."""
    names = [(row.work, row.size, row.backend, row.ranks) for row in rows]
    labels = []
    for row, name in zip(rows, names, strict=True):
        layout = f" {row.layout}" if names.count(name) > 1 else ""
        shown = f"{drawable(row.size, 12)}  {drawable(row.backend, 20)}{layout}"
        labels.append(f"{row.name}  {shown}  {counted(row.ranks, 'rank')}")
    axes.set_yticks(list(heights), labels)
    axes.set_ylim(max(heights) + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _handles(keys: Mapping[str, Key], lines: Sequence[Line]) -> list[Line2D]:
    """Of what is drawn; what has the colour of a backend is dark."""
    present = {mark.key for line in lines for mark in line.marks}
    handles = []
    for name, key in keys.items():
        if key.kind in _LOOKS and name in present:
            look = {"linewidth": 0, "color": _colour(name, key, style.INK), **_LOOKS[key.kind]}
            handles.append(Line2D([], [], label=key.text, **look))
    return handles


def _colour(name: str, key: Key, backend: str) -> str:
    return {"phase": _PHASES.get(name, ""), "strong": style.INK, "faint": style.FAINT, "backend": backend}[key.ink]


def _luminance(colour: str) -> float:
    """Relative luminance of a colour, 0 to 1 (WCAG 2.1)."""
    linear = [level / 12.92 if level <= 0.03928 else ((level + 0.055) / 1.055) ** 2.4 for level in to_rgb(colour)]
    return sum(weight * level for weight, level in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _line(axes: Axes, keys: Mapping[str, Key], line: Line, height: float, backend: str) -> None:
    """Its marks, joined where they are of one backend's colour, and its text right of the last of them, or alone."""
    shown = [mark for mark in line.marks if keys[mark.key].kind in _LOOKS]
    joined = [mark.value for mark in shown if keys[mark.key].ink == "backend"]
    if len(joined) > 1:
        axes.plot(joined, [height] * len(joined), color=backend, linewidth=1.6)
    for mark in shown:
        key = keys[mark.key]
        colour = _colour(mark.key, key, backend)
        look = {"color": colour, **_LOOKS[key.kind]}
        if key.kind == "bar":
            _piece(axes, mark, height, colour)
        elif mark.low is None or mark.high is None:
            axes.plot([mark.value], [height], **look)
        elif key.kind == "band":
            axes.plot([mark.low, mark.high], [height, height], solid_capstyle="butt", **look)
        else:
            errors = style.error_bars([mark.interval])
            axes.errorbar([mark.value], [height], xerr=errors, elinewidth=1.4, capsize=2.5, **look)
    right = max((mark.value if mark.high is None else mark.high for mark in shown), default=0)
    place = "data" if shown else axes.get_yaxis_transform()
    axes.annotate(line.text, (right, height), (8, 0), place, "offset points", fontsize=8, va="center")


def _piece(axes: Axes, mark: Mark, height: float, colour: str) -> None:
    """Of a whole, with its percent where these fit in."""
    axes.barh(height, mark.value, left=mark.low, height=0.78, color=colour, edgecolor="white", linewidth=0.6)
    if mark.value >= _LEAST_LABELLED and mark.low is not None:
        ink = "white" if _luminance(colour) < _DARK_BELOW else style.INK
        text = f"{100 * mark.value:.0f}"
        axes.text(
            mark.low + mark.value / 2, height, text, color=ink, fontsize=8, ha="center", va="center", in_layout=False
        )


def _log_axis(axes: Axes, chart: Chart, lines: Sequence[Line]) -> list[Line2D]:
    """With room beside the marks, and for so much of intervals, which may be wild; the legend's entry of a limit."""
    handles = []
    if chart.limit:
        value, name = chart.limit
        axes.axvline(value, color=style.FAINT, linestyle="--", linewidth=1.2)
        handles.append(Line2D([], [], color=style.FAINT, linestyle="--", label=name))
    shown = [mark for line in lines for mark in line.marks if chart.keys[mark.key].kind in _LOOKS]
    low, high = style.limits([mark.interval for mark in shown], reach=1.5)
    axes.set_xlim(low / 1.2, high * 1.5)
    style.plain_log(axes)
    return handles
