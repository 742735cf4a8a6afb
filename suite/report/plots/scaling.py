"""Scaling efficiency by number of ranks: a column of panels per size, a row per kind of scaling."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from suite.report.facts.model import ReportModel
from suite.report.facts.scaling import Curve
from suite.report.formatting.escape import drawable
from suite.report.formatting.numbers import number
from suite.report.plots import style
from suite.report.plots.style import Series

_MOST_TICKS = 6


def figure(model: ReportModel) -> Figure | None:
    """Null where there is no curve."""
    every = model.scaling
    if not every:
        return None
    kinds = [kind for kind in ("weak", "strong") if any(curve.kind == kind for curve in every)]
    all_sizes = {kind: list(dict.fromkeys(curve.base.size for curve in every if curve.kind == kind)) for kind in kinds}
    sizes = {kind: style.spread(all_sizes[kind], style.MOST_PANELS) for kind in kinds}
    shown = [curve for curve in every if curve.base.size in sizes[curve.kind]]
    colours = style.backend_colours(model.rows)
    lines, more = style.series_of((curve.base for curve in shown), colours, by_scaling=False)
    drawn = style.new_figure(0.4 + 2.3 * len(kinds))
    columns = max(map(len, sizes.values()))
    axes = drawn.subplots(
        len(kinds), columns, sharex=True, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.08, "hspace": 0.55}
    )
    for row, kind in enumerate(kinds):
        axes[row, 0].set_ylabel(f"{kind} scaling\nefficiency eta")
        for column, size in enumerate(sizes[kind]):
            panel = axes[row, column]
            _panel(panel, lines, [curve for curve in shown if (curve.kind, curve.base.size) == (kind, size)])
            panel.set_title(drawable(size, 16))
            panel.set_xlabel("ranks")
            panel.tick_params(labelbottom=True)
        for panel in axes[row, len(sizes[kind]) :]:
            panel.set_axis_off()
    cut = _axes(axes[0, 0], shown)
    legend = style.handles(lines)
    legend.append(Line2D([], [], color=style.FAINT, linestyle=":", label="ideal"))
    omitted = sum(len(all_sizes[kind]) - len(sizes[kind]) for kind in kinds)
    note = " ".join(filter(None, (style.left_out(((omitted, "size"), (more, "series"))), cut)))
    style.frame(drawn, legend, note, left=0.8, right=0.1, bottom=0.45, top=0.25)
    return drawn


def _panel(axes: Axes, lines: Sequence[Series], curves: Sequence[Curve]) -> None:
    """Each curve in its line's look; the last value of the highest is written above its point, of the lowest below."""
    axes.axhline(1, color=style.FAINT, linestyle=":", linewidth=1.4)
    line_of = {row.number: line for line in lines for row in line.rows}
    drawn = [(line_of[curve.base.number], curve) for curve in curves if curve.base.number in line_of]
    drawn.sort(key=lambda pair: pair[1].etas[-1].value)
    for line, curve in drawn:
        # a little to the right, so that no error bar hides another
        offset = min(0.03, 0.1 / len(lines)) * (lines.index(line) - (len(lines) - 1) / 2)
        aside = (curve.ranks[-1] / curve.ranks[0]) ** offset
        style.draw_line(axes, line, [count * aside for count in curve.ranks], curve.etas, width=1.2)
    if len(drawn) > 1:
        _last_value(axes, *drawn[0], above=False)
    if drawn:
        _last_value(axes, *drawn[-1], above=True)


def _last_value(axes: Axes, line: Series, curve: Curve, above: bool) -> None:
    eta = curve.etas[-1].value
    axes.annotate(
        number(eta, 2),
        (curve.ranks[-1], eta),
        xytext=(5, 5 if above else -5),
        textcoords="offset points",
        color=line.colour,
        fontsize=8,
        va="bottom" if above else "top",
        annotation_clip=False,
    )


def _axes(axes: Axes, curves: Sequence[Curve]) -> str:
    """Shared by all panels: ranks on a base-2 logarithm, eta from 0; returns the note on intervals that are cut."""
    ranks = sorted({count for curve in curves for count in curve.ranks})
    axes.set_xscale("log", base=2)
    axes.set_xlim(ranks[0] / 1.25, ranks[-1] * (ranks[-1] / ranks[0]) ** 0.28)
    axes.xaxis.set_major_locator(FixedLocator(style.spread(ranks, _MOST_TICKS)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    etas = [eta for curve in curves for eta in curve.etas[1:]]
    shown = (0.0, max(1.15, 1.05 * style.limits(etas, reach=1.3)[1]))
    axes.set_ylim(*shown)
    return style.cut_note(etas, shown)
