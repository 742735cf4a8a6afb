"""One look for all pictures: white ground, few lines, colours that the colour-blind can distinguish."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from suite.report.formatting.numbers import number
from suite.stats.intervals import Interval

#: Inches; 72 points each, so that a README column of about 830 pixels shows it unscaled.
WIDTH = 8.6
#: Okabe and Ito's palette (Color Universal Design), the pale yellow left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, FAINT = "#222222", "#b5b5b5"
_LEGEND_CHARACTERS = 105
#: Height of a line of the legend or the note, in inches.
_LINE = 0.21
_RULES: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#777777",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "suite",
    "path.simplify": False,
}


@contextmanager
def styled() -> Iterator[None]:
    """The report's own settings over matplotlib's defaults, whatever a user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        cast(Any, matplotlib.rcParams).update(_RULES)
        yield


def new_figure(height: float) -> Figure:
    """An empty figure of the report's width; ``height`` in inches."""
    return Figure(figsize=(WIDTH, height), facecolor="white")


def frame(
    figure: Figure, handles: Sequence[Line2D], note: str, *, left: float, right: float, bottom: float, top: float
) -> None:
    """Legend above all panels, in as many rows as its labels need, the note below them, the panels between.

    ``left`` to ``top``: room around the panels for their labels, in inches. It is reckoned, not asked of matplotlib,
    whose layout engines draw everything twice.
    """
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), _LEGEND_CHARACTERS // (longest + 6)))
    width, height = figure.get_size_inches()
    top = top + 0.1 + _LINE * math.ceil(len(handles) / columns)
    bottom += _LINE if note else 0.0
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height)
    figure.legend(
        handles=list(handles),
        loc="upper left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.2,
        ncols=columns,
        handletextpad=0.5,
    )
    if note:
        figure.text(0.1 / width, 0.08 / height, note, fontsize=8, color="#555555")


def save(figure: Figure, path: Path) -> Path:
    FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None, "Creator": None})
    return path


def error_bars(figures: Sequence[Interval]) -> list[list[float]]:
    """Distances below and above each value, as errorbar takes them; none where there are no bounds."""
    below = [one.value - one.low if one.low is not None else 0.0 for one in figures]
    above = [one.high - one.value if one.high is not None else 0.0 for one in figures]
    return [below, above]


def limits(figures: Sequence[Interval], reach: float) -> tuple[float, float]:
    """Least and greatest bound to show, at most ``reach`` times beyond the values, so that one wild interval does not
    press all values flat."""
    values = [one.value for one in figures]
    lows = [one.value if one.low is None else one.low for one in figures]
    highs = [one.value if one.high is None else one.high for one in figures]
    return max(min(lows), min(values) / reach), min(max(highs), max(values) * reach)


def cut_note(figures: Sequence[Interval], shown: tuple[float, float]) -> str:
    """A note where an interval goes beyond what is shown."""
    cut = any((one.low or shown[0]) < shown[0] or (one.high or shown[1]) > shown[1] for one in figures)
    return "Intervals that reach the frame go on beyond it." if cut else ""


def plain_log(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers: most digits of one decade, 1, 2 and 5 of some, else the decades."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    steps = (1, 2, 3, 4, 6, 8) if high / low < 6 else (1, 2, 5) if high / low < 300 else (1,)
    decades = range(-9, 13)
    ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 1)))
    axis.set_minor_formatter(NullFormatter())
