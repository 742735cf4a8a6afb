"""Scaling efficiency by number of ranks: a panel for each kind of scaling and size, a line for each curve."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from suite.report.facts.model import ReportModel
from suite.report.facts.scaling import Curve
from suite.report.formatting.escape import drawable
from suite.report.formatting.numbers import number
from suite.report.plots import style

_MOST_PANELS, _MOST_LINES, _MOST_TICKS = 4, 6, 6
#: Of the text beside a curve, in eta: texts keep so far apart.
_TEXT_HEIGHT = 0.09
_MARKERS = ("o", "s", "^", "D", "v", "P")


def figure(model: ReportModel) -> Figure | None:
    """Null where there is no curve."""
    of_panel: dict[tuple[str, str], list[Curve]] = defaultdict(list)
    for curve in model.scaling:
        of_panel[curve.kind, curve.base.size].append(curve)
    if not of_panel:
        return None
    weak_first = sorted(of_panel, key=lambda key: key[0] != "weak")
    shown = {key: of_panel[key][:_MOST_LINES] for key in style.spread(weak_first, _MOST_PANELS)}
    curves = [curve for each in shown.values() for curve in each]
    colours = style.backend_colours(model.rows)
    drawn = style.new_figure(2.7)
    panels = drawn.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
    for panel, ((kind, size), own) in zip(panels, shown.items(), strict=True):
        _panel(panel, own, colours)
        panel.set_title(f"{drawable(size, 16)}, {kind} scaling")
        panel.set_xlabel("ranks")
    panels[0].set_ylabel("efficiency eta")
    _axes(panels[0], curves)
    names = sorted({curve.base.backend for curve in curves})
    legend = [Line2D([], [], color=colours[name], label=drawable(name, 40)) for name in names]
    legend.append(Line2D([], [], color=style.FAINT, linestyle=":", label="ideal"))
    every = len(model.scaling)
    note = f"{len(curves)} of {every} curves drawn; all are in the table." if len(curves) < every else ""
    style.frame(drawn, legend, note)
    return drawn


def _panel(axes: Axes, curves: Sequence[Curve], colours: Mapping[str, str]) -> None:
    """Where a backend has several curves each has its marker; each ends with the row of most ranks and its value."""
    axes.axhline(1, color=style.FAINT, linestyle=":", linewidth=1.4)
    seen: list[str] = []
    beside = 0.0
    for curve in sorted(curves, key=lambda curve: curve.etas[-1].value):
        backend, values = curve.base.backend, [eta.value for eta in curve.etas]
        colour, marker = colours[backend], _MARKERS[seen.count(backend)]
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.2}
        # a little to the right of the one before, so that no error bar hides another
        places = [count * 1.03 ** len(seen) for count in curve.ranks]
        axes.errorbar(places, values, yerr=style.error_bars(curve.etas), elinewidth=1.4, capsize=2.5, **look)
        seen.append(backend)
        beside = max(beside + _TEXT_HEIGHT, values[-1])
        end = (curve.ranks[-1] * 1.03 ** len(curves), beside)
        text = f"{curve.largest.row.name} {number(values[-1], 2)}"
        axes.annotate(text, end, (6, 0), textcoords="offset points", color=colour, fontsize=8, va="center")


def _axes(axes: Axes, curves: Sequence[Curve]) -> None:
    """Shared by all panels: ranks on a base-2 logarithm, eta from 0, with room for what a curve ends with."""
    ranks = sorted({count for curve in curves for count in curve.ranks})
    axes.set_xscale("log", base=2)
    axes.set_xlim(ranks[0] / 1.25, ranks[-1] * (ranks[-1] / ranks[0]) ** 0.5)
    axes.xaxis.set_major_locator(FixedLocator(style.spread(ranks, _MOST_TICKS)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    etas = [eta for curve in curves for eta in curve.etas[1:]]
    axes.set_ylim(0, max(1.15, 1.05 * style.limits(etas, reach=1.3)[1]))
