"""Which rows a picture shows, and how it distinguishes them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from suite.report.facts.kind import WorkKind
from suite.report.facts.pool import Row
from suite.report.formatting.escape import drawable
from suite.report.formatting.numbers import counted
from suite.report.plots import style
from suite.stats.intervals import Interval

#: Most lines, panels and bars that stay readable.
MOST_SERIES, MOST_PANELS, MOST_SIZES, MOST_BARS = 6, 4, 10, 24
#: Where each is a single point, as of many backends at one size on one number of ranks.
MOST_POINTS = 12

#: Places in a series' key: the algorithm with the family say more than a workload's name.
_WORKLOAD, _WORK = 2, 3

Item = TypeVar("Item")
Key = tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """Rows that are drawn as one line, with its colour (the backend's) and marker."""

    label: str
    colour: str
    marker: str
    rows: tuple[Row, ...]


def series_of(rows: Iterable[Row], colours: Mapping[str, str], by_scaling: bool = True) -> tuple[list[Series], int]:
    """The series of most rows, in the order of their names, and how many more there are.

    ``colours`` of the report's backends; ``by_scaling``: weak and strong are lines of their own.
    """
    by_key: dict[Key, list[Row]] = {}
    for row in rows:
        by_key.setdefault(_key(row, by_scaling), []).append(row)
    most = MOST_SERIES if any(len(found) > 1 for found in by_key.values()) else MOST_POINTS
    largest = sorted(by_key, key=lambda key: (-len(by_key[key]), key))[:most]
    keys = sorted(largest)
    used: dict[str, int] = {}
    found = []
    for key in keys:
        marker = style.MARKERS[used.setdefault(key[0], 0) % len(style.MARKERS)]
        used[key[0]] += 1
        found.append(Series(_label(key, keys), colours[key[0]], marker, tuple(by_key[key])))
    return found, len(by_key) - len(keys)


def backend_colours(rows: Iterable[Row]) -> dict[str, str]:
    """One colour per backend; from all rows of a report, so that it is the same in every picture."""
    names = sorted({row.backend for row in rows})
    return {name: style.COLOURS[index % len(style.COLOURS)] for index, name in enumerate(names)}


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
    where = (setting.precision, f"{setting.threads_per_rank} threads", f"machine {setting.machine}")
    scaling = row.scaling if by_scaling else ""
    return (
        row.backend,
        row.strategy,
        row.workload,
        f"{row.work.algorithm} {row.work.family}",
        scaling,
        setting.kind,
        setting.track,
        setting.device,
        *where,
        row.variant,
    )


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most ``most`` of the items, first and last among them, evenly taken from between."""
    if len(items) <= most:
        return list(items)
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


def bars(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """At most ``MOST_BARS`` rows for a picture with one bar each, and what was left out, in words.

    Where there are too many: of each kind of work, size, backend and rank count the fastest row, then fewer rank
    counts, then fewer sizes, so that the backends of what is drawn stay side by side.
    """
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
    """``Not drawn: 3 sizes, 1 series; all rows are in the table.`` Empty where all was drawn."""
    words = [counted(count, noun, "series" if noun == "series" else None) for count, noun in counts if count > 0]
    return f"Not drawn: {', '.join(words)}; all rows are in the table." if words else ""


def draw_line(axes: Axes, line: Series, places: Sequence[float], figures: Sequence[Interval], width: float) -> None:
    """A line in its look, with its intervals. ``width``: of what joins its points, 0 for nothing."""
    axes.errorbar(
        places,
        [one.value for one in figures],
        yerr=style.error_bars(figures),
        color=line.colour,
        marker=line.marker,
        markersize=5,
        linewidth=width,
        elinewidth=1.4,
        capsize=2.5,
    )


def handles(lines: Sequence[Series]) -> list[Line2D]:
    return [
        Line2D([], [], color=line.colour, marker=line.marker, label=line.label, linewidth=1.2, markersize=5)
        for line in lines
    ]
