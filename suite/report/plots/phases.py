"""Where an iteration's time goes: one bar per row, its phases as shares."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import drawable
from suite.report.formatting.numbers import counted, number
from suite.report.plots import style
from suite.report.plots.series import bars
from suite.spec.phases import ALL

#: relative luminance (WCAG 2.1) below which white ink reads better than dark
_DARK_BELOW = 0.26
_LEAST_LABELLED = 0.06


def figure(model: ReportModel) -> Figure | None:
    """Null where no row has phases. Those of asynchronous rows are parts of no whole, so they have no bar."""
    rows, omitted = bars([row for row in model.rows if row.phases and not row.setting.asynchronous])
    if not rows:
        return None
    heights = bar_positions(rows)
    drawn = bar_figure(heights)
    axes = drawn.subplots()
    _bars(axes, rows, heights)
    longest = bar_labels(axes, rows, heights)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("share of an iteration; right: its seconds")
    measured = {phase.name for row in rows for phase in row.phases}
    handles = [
        Line2D([], [], color=phase.colour, marker="s", linewidth=0, markersize=7, label=phase.label)
        for phase in ALL
        if phase.name in measured
    ]
    style.frame(drawn, bar_margins(longest, right=0.75), handles, omitted)
    return drawn


def bar_figure(heights: Sequence[float]) -> Figure:
    """A figure with room for bars at these positions."""
    return style.new_figure(1.2 + 0.23 * max(heights))


def bar_margins(label_characters: int, right: float) -> style.Margins:
    """Room for labels of at most so many characters left of the bars."""
    return style.Margins(left=0.2 + 0.073 * label_characters, right=right, bottom=0.45, top=0.05)


def bar_positions(rows: Sequence[Row]) -> list[float]:
    """Heights of the bars from the top down, with a gap wherever the size or the kind of work changes."""
    heights, height = [], 0.0
    for before, row in zip([rows[0], *rows[:-1]], rows, strict=True):
        height += 0.7 if (before.work, before.size) != (row.work, row.size) else 0.0
        heights.append(height)
        height += 1.0
    return heights


def bar_labels(axes: Axes, rows: Sequence[Row], heights: Sequence[float]) -> int:
    """Size, backend and ranks left of each bar, the algorithm where there are several, the layout where rows differ in
    it alone; the longest's length."""
    names = [(row.work, row.size, row.backend, row.ranks) for row in rows]
    several = len({row.work.algorithm for row in rows}) > 1
    labels = []
    for row, name in zip(rows, names, strict=True):
        layout = f" {row.layout}" if names.count(name) > 1 else ""
        algorithm = f"{drawable(row.work.algorithm, 12)}  " if several else ""
        shown = f"{drawable(row.size, 12)}  {drawable(row.backend, 20)}{layout}"
        labels.append(f"{algorithm}{shown}  {counted(row.ranks, 'rank')}")
    axes.set_yticks(list(heights), labels)
    axes.set_ylim(max(heights) + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    return max(map(len, labels))


def _bars(axes: Axes, rows: Sequence[Row], heights: Sequence[float]) -> None:
    lefts = [0.0] * len(rows)
    for spec in ALL:
        shares = [next((phase.share or 0.0 for phase in row.phases if phase.name == spec.name), 0.0) for row in rows]
        colour = spec.colour
        axes.barh(heights, shares, left=lefts, height=0.78, color=colour, edgecolor="white", linewidth=0.6)
        ink = "white" if _luminance(colour) < _DARK_BELOW else style.INK
        for height, left, share in zip(heights, lefts, shares, strict=True):
            if share >= _LEAST_LABELLED:
                middle = left + share / 2
                axes.text(middle, height, f"{100 * share:.0f}", color=ink, fontsize=8, ha="center", va="center")
        lefts = [left + share for left, share in zip(lefts, shares, strict=True)]
    for row, height in zip(rows, heights, strict=True):
        axes.text(1.01, height, f"{number(row.iteration_seconds)} s", fontsize=8, va="center", ha="left")


def _luminance(colour: str) -> float:
    """Relative luminance of a colour, 0 to 1 (WCAG 2.1)."""
    linear = [level / 12.92 if level <= 0.03928 else ((level + 0.055) / 1.055) ** 2.4 for level in to_rgb(colour)]
    return sum(weight * level for weight, level in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
