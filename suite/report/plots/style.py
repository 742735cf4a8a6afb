"""One look for all pictures, with colours that the colour-blind can distinguish; and which rows a picture shows."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from typing import TypeVar

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from suite.report.facts.entry import WorkKind
from suite.report.facts.pool import Row
from suite.report.formatting.numbers import counted
from suite.stats.intervals import Interval

#: Inches; 72 points each, so that a README column of about 830 pixels shows it unscaled.
_WIDTH = 8.6
#: Okabe and Ito's palette (Color Universal Design), the pale yellow left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
INK, FAINT = "#222222", "#b5b5b5"
_LEGEND_CHARACTERS = 105
_MOST_BARS = 24

Item = TypeVar("Item")


def styled() -> AbstractContextManager[None]:
    """The report's own settings over matplotlib's defaults, whatever a user's matplotlibrc says."""
    return matplotlib.style.context(["default", Path(__file__).with_name("report.mplstyle")])


def new_figure(height: float) -> Figure:
    """An empty figure of the report's width; ``height`` in inches."""
    return Figure(figsize=(_WIDTH, height))


def frame(figure: Figure, handles: Sequence[Line2D], note: str) -> None:
    """Legend above all panels, the note below."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), _LEGEND_CHARACTERS // (longest + 6)))
    figure.legend(handles=list(handles), loc="outside upper left", ncols=columns)
    if note:
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8, color="#555555")


def save(figure: Figure, path: Path) -> Path:
    FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None, "Creator": None})
    return path


def error_bars(figures: Sequence[Interval]) -> list[list[float]]:
    """Distances below and above each value, as errorbar takes them; none where there are no bounds."""
    below = [one.value - one.low if one.low is not None else 0.0 for one in figures]
    above = [one.high - one.value if one.high is not None else 0.0 for one in figures]
    return [below, above]


def limits(figures: Sequence[Interval], reach: float) -> tuple[float, float]:
    """Bounds to show, at most ``reach`` times beyond the values, so that no wild interval presses all values flat."""
    values = [one.value for one in figures]
    lows = [one.value if one.low is None else one.low for one in figures]
    highs = [one.value if one.high is None else one.high for one in figures]
    return max(min(lows), min(values) / reach), min(max(highs), max(values) * reach)


def plain_log(axes: Axes) -> None:
    """A logarithmic x axis with plain numbers: close enough in one decade that there is always one, 1, 2 and 5 of some
    decades, else these alone."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    steps = (1, 1.5, 2, 3, 4, 6, 8) if high / low < 20 else (1, 2, 5) if high / low < 300 else (1,)
    decades = range(-9, 13)
    ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def backend_colours(rows: Iterable[Row]) -> dict[str, str]:
    """One colour per backend; from all rows of a report, so that it is the same in every picture."""
    names = sorted({row.backend for row in rows})
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most ``most`` of the items, first and last among them, evenly taken from between."""
    if len(items) <= most:
        return list(items)
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


def bars(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """At most ``_MOST_BARS`` rows, and what was left out, in words: of each work, size, backend and rank count the
    fastest row, then fewer rank counts, or fewer sizes too, so that backends stay side by side."""
    if len(rows) <= _MOST_BARS:
        return list(rows), ""
    fastest: dict[tuple[WorkKind, str, str, int], Row] = {}
    for row in sorted(rows, key=lambda row: -(row.samples_per_second.value if row.samples_per_second else 0.0)):
        fastest.setdefault((row.work, row.size, row.backend, row.ranks), row)
    kept = sorted(fastest.values(), key=lambda row: row.number)
    sizes, ranks = list(dict.fromkeys(row.size for row in kept)), sorted({row.ranks for row in kept})
    for most_sizes, most_ranks in product(range(max(len(sizes), 2), 1, -1), range(max(len(ranks), 2), 1, -1)):
        wanted_sizes, wanted_ranks = set(spread(sizes, most_sizes)), set(spread(ranks, most_ranks))
        chosen = [row for row in kept if row.size in wanted_sizes and row.ranks in wanted_ranks]
        if len(chosen) <= _MOST_BARS:
            break
    else:
        chosen = kept[:_MOST_BARS]
    return chosen, f"{len(chosen)} of {counted(len(rows), 'row')} drawn, fastest layouts first; all are in the table."
