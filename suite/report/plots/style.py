"""One look for all pictures: white ground, few lines, colours that the colour-blind can distinguish; and which rows a
picture shows."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from suite.report.facts.entry import WorkKind
from suite.report.facts.pool import Row
from suite.report.formatting.escape import drawable
from suite.report.formatting.numbers import counted, number
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
    "legend.borderaxespad": 0.2,
    "legend.handletextpad": 0.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "suite",
    "path.simplify": False,
}
#: Most lines, panels and bars that stay readable.
MOST_SERIES, MOST_PANELS, MOST_SIZES, MOST_BARS = 6, 4, 10, 24
#: Where each is a single point, as of many backends at one size on one number of ranks.
MOST_POINTS = 12

#: Places in a series' key: the algorithm with the family say more than a workload's name.
_WORKLOAD, _WORK = 2, 3

Item = TypeVar("Item")
Key = tuple[str, ...]


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
    """Legend above all panels, the note below. ``left`` to ``top``: room around the panels for their labels, in inches,
    which is reckoned, since matplotlib's layout engines draw everything twice."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), _LEGEND_CHARACTERS // (longest + 6)))
    width, height = figure.get_size_inches()
    top = top + 0.1 + _LINE * math.ceil(len(handles) / columns)
    bottom += _LINE if note else 0.0
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height)
    figure.legend(handles=list(handles), loc="upper left", bbox_to_anchor=(0, 1), ncols=columns)
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
    """Bounds to show, at most ``reach`` times beyond the values, so that no wild interval presses all values flat."""
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


@dataclass(frozen=True)
class Series:
    """Rows that are drawn as one line, with its colour (the backend's) and marker."""

    label: str
    colour: str
    marker: str
    rows: tuple[Row, ...]

    @property
    def look(self) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker, "markersize": 5}


def series_of(rows: Iterable[Row], colours: Mapping[str, str], by_scaling: bool = True) -> tuple[list[Series], int]:
    """The series of most rows, by name, and how many more there are. ``by_scaling``: weak and strong are two."""
    by_key: dict[Key, list[Row]] = {}
    for row in rows:
        by_key.setdefault(_key(row, by_scaling), []).append(row)
    most = MOST_SERIES if any(len(found) > 1 for found in by_key.values()) else MOST_POINTS
    keys = sorted(sorted(by_key, key=lambda key: (-len(by_key[key]), key))[:most])
    used: Counter[str] = Counter()
    found = []
    for key in keys:
        marker = MARKERS[used[key[0]] % len(MARKERS)]
        used[key[0]] += 1
        found.append(Series(_label(key, keys), colours[key[0]], marker, tuple(by_key[key])))
    return found, len(by_key) - len(keys)


def backend_colours(rows: Iterable[Row]) -> dict[str, str]:
    """One colour per backend; from all rows of a report, so that it is the same in every picture."""
    names = sorted({row.backend for row in rows})
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}


def _label(key: Key, keys: Sequence[Key]) -> str:
    """The backend, and its strategy or, where it has several lines, the setting in which they differ."""
    own = [other for other in keys if other[0] == key[0]]
    differing = [index for index in range(1, len(key)) if len({other[index] for other in own}) > 1] or [1]
    if len({other[_WORK] for other in keys}) > 1:
        differing = sorted({*differing, _WORK})
    if _WORK in differing and _WORKLOAD in differing:
        shorter = [index for index in differing if index != _WORKLOAD]
        tells = len({tuple(other[index] for index in shorter) for other in own}) == len(own)
        differing = shorter if tells else differing
    return drawable(" ".join([key[0], *(key[index] for index in differing if key[index])]), 40)


def _key(row: Row, by_scaling: bool) -> Key:
    """Backend and strategy first, then all else in which two lines can differ."""
    setting = row.setting
    workload, strategy = row.manifest.workload, row.manifest.layout.strategy()
    work = (workload.name, f"{row.work.algorithm} {row.work.family}", workload.scaling if by_scaling else "")
    where = (setting.precision, f"{setting.threads_per_rank} threads", f"machine {setting.machine}")
    return (row.backend, strategy, *work, setting.kind, setting.track, setting.device, *where, row.variant)


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most ``most`` of the items, first and last among them, evenly taken from between."""
    if len(items) <= most:
        return list(items)
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


def bars(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """At most ``MOST_BARS`` rows, and what was left out, in words: of each work, size, backend and rank count the
    fastest row, then fewer rank counts, then fewer sizes, so that backends stay side by side."""
    if len(rows) <= MOST_BARS:
        return list(rows), ""
    fastest: dict[tuple[WorkKind, str, str, int], Row] = {}
    for row in sorted(rows, key=lambda row: -(row.samples_per_second.value if row.samples_per_second else 0.0)):
        fastest.setdefault((row.work, row.size, row.backend, row.ranks), row)
    kept = sorted(fastest.values(), key=lambda row: row.number)
    sizes, ranks = list(dict.fromkeys(row.size for row in kept)), sorted({row.ranks for row in kept})
    limits = [
        *((len(sizes), most) for most in range(len(ranks), 1, -1)),
        *((most, 2) for most in range(len(sizes), 1, -1)),
    ]
    for most_sizes, most_ranks in limits:
        wanted_sizes, wanted_ranks = set(spread(sizes, most_sizes)), set(spread(ranks, most_ranks))
        chosen = [row for row in kept if row.size in wanted_sizes and row.ranks in wanted_ranks]
        if len(chosen) <= MOST_BARS:
            break
    else:
        chosen = kept[:MOST_BARS]
    return chosen, f"{len(chosen)} of {counted(len(rows), 'row')} drawn, fastest layouts first; all are in the table."


def left_out(counts: Sequence[tuple[int, str]]) -> str:
    """``Not drawn: 3 sizes, 1 series; all rows are in the table.``"""
    words = [counted(count, noun, "series" if noun == "series" else None) for count, noun in counts if count > 0]
    return f"Not drawn: {', '.join(words)}; all rows are in the table." if words else ""


def draw_line(axes: Axes, line: Series, places: Sequence[float], figures: Sequence[Interval], width: float) -> None:
    """With its intervals. ``width``: of what joins its points, 0 for nothing."""
    values, bars = [one.value for one in figures], error_bars(figures)
    axes.errorbar(places, values, yerr=bars, linewidth=width, elinewidth=1.4, capsize=2.5, **line.look)


def handles(lines: Sequence[Series]) -> list[Line2D]:
    return [Line2D([], [], label=line.label, linewidth=1.2, **line.look) for line in lines]
