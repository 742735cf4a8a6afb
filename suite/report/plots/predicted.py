"""Predicted rates with their bands beside what was measured, one line per row."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from suite.report.facts.model import ReportModel
from suite.report.formatting.numbers import percent
from suite.report.plots import style
from suite.report.plots.phases import bar_figure, bar_labels, bar_margins, bar_positions
from suite.report.plots.series import backend_colours, bars
from suite.stats.intervals import Interval


def figure(model: ReportModel) -> Figure | None:
    """Null where no row was both predicted and measured."""
    rows, omitted = bars([row for row in model.rows if row.expected and row.samples_per_second])
    if not rows:
        return None
    heights, colours = bar_positions(rows), backend_colours(model.rows)
    drawn = bar_figure(heights)
    axes = drawn.subplots()
    shown = []
    for row, height in zip(rows, heights, strict=True):
        assert row.expected is not None and row.samples_per_second is not None, "chosen above"
        shown += [row.expected.rate, row.samples_per_second]
        _line(axes, row.expected.rate, row.samples_per_second, height, colours[row.backend])
    longest = bar_labels(axes, rows, heights)
    low, high = style.limits(shown, reach=1.5)
    axes.set_xlim(low / 1.15, high * 1.45)
    style.plain_log(axes, "x")
    axes.set_xlabel("samples/s (log); right: measured / predicted")
    style.frame(drawn, bar_margins(longest, right=0.1), _handles(), omitted)
    return drawn


def _handles() -> list[Line2D]:
    return [
        Line2D([], [], color=style.FAINT, linewidth=7, label="predicted, 80 % band"),
        Line2D([], [], color=style.INK, marker="|", linewidth=0, markersize=9, markeredgewidth=2, label="predicted"),
        Line2D([], [], color=style.INK, marker="o", linewidth=0, markersize=5.5, label="measured, 95 %"),
    ]


def _line(axes: Axes, predicted: Interval, measured: Interval, height: float, colour: str) -> None:
    if predicted.low is not None and predicted.high is not None:
        axes.plot(
            [predicted.low, predicted.high], [height, height], color=style.FAINT, linewidth=7, solid_capstyle="butt"
        )
    axes.plot([predicted.value], [height], color=style.INK, marker="|", markersize=9, markeredgewidth=2)
    axes.errorbar(
        [measured.value],
        [height],
        xerr=style.error_bars([measured]),
        color=colour,
        marker="o",
        markersize=5.5,
        elinewidth=1.4,
        capsize=2.5,
    )
    right = max(
        value for value in (predicted.high, predicted.value, measured.high, measured.value) if value is not None
    )
    axes.annotate(
        f"{percent(measured.value / predicted.value)} %",
        (right, height),
        xytext=(8, 0),
        textcoords="offset points",
        fontsize=8,
        va="center",
    )
