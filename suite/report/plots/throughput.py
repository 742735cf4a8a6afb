"""Samples per second by model size, one panel per number of ranks; below, the rate against the best of equal work."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import drawable
from suite.report.formatting.numbers import counted
from suite.report.plots import style
from suite.report.plots.style import Series
from suite.stats.intervals import Interval

#: Below this span of rates a linear axis from zero shows more than a logarithmic one.
_LEAST_LOG_SPAN = 5
_GAPS = {"wspace": 0.06, "hspace": 0.12}


def figure(model: ReportModel) -> Figure | None:
    """Null where nothing was measured."""
    if not any(row.measured for row in model.rows):
        return None
    all_sizes = list(dict.fromkeys(row.size for row in model.rows))
    all_ranks = sorted({row.ranks for row in model.rows})
    sizes, ranks = style.spread(all_sizes, style.MOST_SIZES), style.spread(all_ranks, style.MOST_PANELS)
    rows = [row for row in model.rows if row.size in set(sizes) and row.ranks in set(ranks)]
    lines, more = style.series_of(rows, style.backend_colours(model.rows))
    rates = {row.number: row.samples_per_second for row in rows if row.samples_per_second}
    ratios = {one.row.number: one.ratio for group in model.ranking.groups for one in group.places}
    drawn = style.new_figure(4.6 if ratios else 3.2)
    heights = [2, 1] if ratios else [1]
    axes = drawn.subplots(
        len(heights), len(ranks), sharex=True, sharey="row", squeeze=False, height_ratios=heights, gridspec_kw=_GAPS
    )
    for column, count in enumerate(ranks):
        axes[0, column].set_title(counted(count, "rank"))
        _panel(axes[0, column], lines, sizes, count, rates, width=0.8)
        _failed(axes[0, column], lines, sizes, count)
        if ratios:
            axes[1, column].axhline(1, color=style.FAINT, linewidth=1)
            _panel(axes[1, column], lines, sizes, count, ratios, width=0)
        axes[-1, column].set_xticks(
            range(len(sizes)), [drawable(size, 12) for size in sizes], rotation=_rotation(sizes, ranks)
        )
    notes = [_rate_axis(axes[0, 0], list(rates.values()))]
    if ratios:
        notes.append(_ratio_axis(axes[1, 0], [ratios[row.number] for row in rows if row.number in ratios]))
    omitted = ((len(all_sizes) - len(sizes), "size"), (len(all_ranks) - len(ranks), "rank count"), (more, "series"))
    bottom = 0.55 if _rotation(sizes, ranks) else 0.3
    note = " ".join(dict.fromkeys(text for text in (style.left_out(omitted), *notes) if text))
    legend = style.handles(lines)
    if any(not row.measured for row in rows):
        legend.append(Line2D([], [], color=style.INK, marker="x", linewidth=0, label="no run succeeded"))
    style.frame(drawn, legend, note, left=0.8, right=0.1, bottom=bottom, top=0.25)
    return drawn


def _rate_axis(axes: Axes, rates: Sequence[Interval]) -> str:
    """Shared by the upper panels; returns the note on intervals that are cut."""
    values = [rate.value for rate in rates]
    is_linear = max(values) / min(values) < _LEAST_LOG_SPAN
    low, high = style.limits(rates, reach=1.5 if is_linear else 2.5)
    shown = (0.0, 1.1 * high) if is_linear else (low / 1.2, high * 1.2)
    axes.set_ylim(*shown)
    axes.set_ylabel("samples/s" if is_linear else "samples/s (log)")
    if not is_linear:
        style.plain_log(axes, "y")
    return style.cut_note(rates, shown)


def _ratio_axis(axes: Axes, ratios: Sequence[Interval]) -> str:
    low, high = style.limits(ratios, reach=1.5)
    room = 0.1 * (high - low) + 0.02
    shown = (low - room, high + room)
    axes.set_ylim(*shown)
    axes.set_ylabel("rate / best")
    return style.cut_note(ratios, shown)


def _rotation(sizes: Sequence[str], ranks: Sequence[int]) -> int:
    """Size names lie flat as long as they fit side by side."""
    return 45 if (max(map(len, sizes)) + 2) * len(sizes) * len(ranks) > 100 else 0


def _panel(
    axes: Axes, lines: Sequence[Series], sizes: Sequence[str], ranks: int, figures: dict[int, Interval], width: float
) -> None:
    for index, line in enumerate(lines):
        rows = [row for row in line.rows if row.ranks == ranks and row.number in figures]
        found = [figures[row.number] for row in rows]
        style.draw_line(axes, line, _positions(rows, sizes, index, lines), found, width)
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.grid(axis="x", visible=False)


def _failed(axes: Axes, lines: Sequence[Series], sizes: Sequence[str], ranks: int) -> None:
    look: dict[str, Any] = {"marker": "x", "linewidth": 0, "transform": axes.get_xaxis_transform()}
    for index, line in enumerate(lines):
        rows = [row for row in line.rows if row.ranks == ranks and not row.measured]
        axes.plot(_positions(rows, sizes, index, lines), [0.04] * len(rows), color=line.colour, **look)


def _positions(rows: Sequence[Row], sizes: Sequence[str], index: int, lines: Sequence[Series]) -> list[float]:
    """Where the points of line ``index`` are drawn: next to those of the others, so that no error bar hides another."""
    offset = min(0.1, 0.6 / len(lines)) * (index - (len(lines) - 1) / 2)
    return [sizes.index(row.size) + offset for row in rows]
