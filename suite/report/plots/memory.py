"""Peak memory against the least that the layout needs, one line per row."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from suite.report.facts.costs import MemoryUse
from suite.report.facts.model import ReportModel
from suite.report.formatting.numbers import GIB, gib, percent
from suite.report.plots import style
from suite.report.plots.phases import bar_figure, bar_labels, bar_margins, bar_positions
from suite.report.plots.series import backend_colours, bars


def figure(model: ReportModel) -> Figure | None:
    """Null where no row knows both its peak and its floor."""
    rows, omitted = bars([row for row in model.rows if row.memory and row.memory.floor_bytes])
    if not rows:
        return None
    heights, colours = bar_positions(rows), backend_colours(model.rows)
    drawn = bar_figure(heights)
    axes = drawn.subplots()
    for row, height in zip(rows, heights, strict=True):
        assert row.memory is not None, "chosen above"
        _line(axes, row.memory, height, colours[row.backend])
    longest = bar_labels(axes, rows, heights)
    capacities = {machine.device_memory_bytes for machine in model.machines if machine.device_memory_bytes}
    handles = _handles()
    if len(capacities) == 1:
        capacity = capacities.pop()
        axes.axvline(capacity / GIB, color=style.FAINT, linestyle="--", linewidth=1.2)
        handles.append(Line2D([], [], color=style.FAINT, linestyle="--", label=f"device memory, {gib(capacity)} GiB"))
    high = axes.get_xlim()[1]
    axes.set_xlim(min(row.memory.floor_bytes or GIB for row in rows if row.memory) / GIB / 1.6, high * 1.5)
    style.plain_log(axes, "x")
    axes.set_xlabel("GiB per device (log); right: floor / peak")
    style.frame(drawn, bar_margins(longest, right=0.1), handles, omitted)
    return drawn


def _handles() -> list:
    floor = Line2D([], [], color=style.INK, marker="|", linewidth=0, markersize=9, markeredgewidth=2, label="floor")
    peak = Line2D([], [], color=style.INK, marker="o", linewidth=0, markersize=5.5, label="peak")
    return [floor, peak]


def _line(axes: Axes, memory: MemoryUse, height: float, colour: str) -> None:
    assert memory.floor_bytes is not None, "chosen by the caller"
    floor, peak = memory.floor_bytes / GIB, memory.peak_bytes / GIB
    axes.plot([floor, peak], [height, height], color=colour, linewidth=1.6)
    axes.plot([floor], [height], color=colour, marker="|", markersize=9, markeredgewidth=2)
    axes.plot([peak], [height], color=colour, marker="o", markersize=5.5)
    axes.annotate(
        f"{percent(memory.efficiency)} %",
        (max(peak, floor), height),
        xytext=(8, 0),
        textcoords="offset points",
        fontsize=8,
        va="center",
    )
