"""A site in memory: its pages, and what is told of it. Every word that others chose is escaped, and a policy lets
nothing load or run but the page's own style and script."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from markupsafe import Markup

from suite.report.formatting.escape import visible
from suite.report.formatting.html import in_script, policy, source
from suite.report.formatting.numbers import UNKNOWN, counted, interval, listed, moment, number
from suite.report.site.chart import picture, spark
from suite.report.site.history import LevelChange, Point, Series, changed_versions
from suite.report.site.runs import Gathered
from suite.stats.changes import LEVEL
from suite.stats.compare import compare
from suite.stats.intervals import log_rates
from suite.stats.moderated import mean_of

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_LONGEST = 1000
#: Of points that the page for comparing has intervals of: more take long to compute, and a page too long to load.
_MOST_PAIRS = 10_000
#: Ids are made of what they are of, so that the same change keeps its own on every machine.
_NAMESPACE = UUID("4b0f3f5e-6c1b-4b7e-9d3a-2f1d8c5a7e90")
_MOST_ENTRIES = 200
_NO_TIME = "1970-01-01T00:00:00Z"
#: What says that series differ, and not in what.
_UNSHOWN_FACTS = ("work", "settings")
#: What a later point is told to differ in, at most.
_MOST_DIFFERENCES = 3


def made_pages(title: str, found: Gathered, series: Sequence[Series], base: str | None) -> Iterator[tuple[str, str]]:
    """By name. ``base``: where the site will be, for links of its feed."""
    yield "index.html", _index_page(title, found, series)
    yield "compare.html", _compare_page(series)
    yield "feed.xml", _feed(title, series, base)
    for one in series:
        yield f"series/{one.id}.html", _series_page(one)


def summary(found: Gathered, series: Sequence[Series]) -> dict[str, Any]:
    """As ``WrittenSite`` tells it."""
    changes = [(one, change) for one in series for change in one.changes]
    changes.sort(key=lambda pair: -(pair[1].began or 0.0))
    return {
        "runs": len(found.runs),
        "points": sum(len(one.points) for one in series),
        "regressions": sum(change.direction == "slower" for _, change in changes),
        "changes": [f"{one.name} on {one.facts['machine']}: {_change_title(change)}" for one, change in changes],
        "series": [one.as_json() for one in series],
        "told": found.told,
    }


def _index_page(title: str, found: Gathered, series: Sequence[Series]) -> str:
    starts = [point.started for one in series for point in one.points if point.started is not None]
    return _rendered(
        "index.html.jinja",
        scripts=("site.js",),
        title=title,
        up="",
        runs=f"{sum(one.runs for one in series):,}",
        first=min(starts, default=None),
        last=max(starts, default=None),
        level=f"{LEVEL:.0%}",
        alarms=f"{LEVEL * len(series):.2g} on average",
        told=found.told,
        series=series,
    )


def _series_page(series: Series) -> str:
    points = sorted((*series.points, *series.lost), key=lambda point: (point.started or 0.0, point.folder, point.id))
    rows = [_point_row(point, before) for before, point in pairwise([None, *points]) if point]
    return _rendered(
        "series.html.jinja",
        scripts=("site.js",),
        title=series.name,
        up="../",
        series=series,
        points=rows[::-1],
        facts=_shown(series),
    )


def _change_title(change: LevelChange) -> str:
    """``12 % slower since 2026-11-03``."""
    return f"{_percent(change.ratio.value).lstrip('+-')} {change.direction} since {_day(change.began)}"


def _change_text(change: LevelChange, series: Series) -> str:
    ratio, low, high = (number(figure) for figure in (change.ratio.value, change.ratio.low, change.ratio.high))
    before, after, first, last = (
        f"{moment(point.started)} ({point.folder})"
        for point in (series.points[place] for place in (change.after - 1, change.after, change.first, change.last))
    )
    where = "No other place is likely (95 %)."
    if change.first != change.last:
        where = f"With 95 % it begins between those of {first} and {last}."
    chance = f"at most {number(100 * change.probability, 2)} %" if change.probability > 1e-6 else "less than 0.0001 %"
    return (
        f"The rate is {ratio} [{low}, {high}] times what it was. It changes with the point of {after}, after that of "
        f"{before}. {where} Noise alone shows such a change in {chance} of histories like this one."
    )


def _point_row(point: Point, before: Point | None) -> tuple[Point, str, str, str]:
    """With the suite's version, what is not the same as ``before``, and the runs without a rate."""
    differing = changed_versions(before, point) if before else ()
    texts = [f"{name} {old} / {new}" for name, old, new in differing[:_MOST_DIFFERENCES]]
    if len(differing) > len(texts):
        texts.append(f"and {len(differing) - len(texts)} more")
    suite = " ".join(filter(None, (point.stack.get("suite"), point.stack.get("suite's commit"))))
    lost = [f"{count} {state} ({why})" if why else f"{count} {state}" for state, count, why in point.lost]
    return point, suite, ", ".join(texts), listed(lost)


def _compare_page(series: Sequence[Series]) -> str:
    with_points = [one for one in series if one.points]
    of_work: dict[str, list[Series]] = defaultdict(list)
    for one in with_points:
        of_work[one.facts["work"]].append(one)
    newest = _newest(of_work.values())
    data = {
        "versions": {point.versions: _plain(point.stack) for one in with_points for point in one.points},
        "newest": newest,
        "intervals": {pair: bounds for alike in of_work.values() for pair, bounds in _intervals(alike, newest)},
        "series": [_compared(one) for one in with_points],
    }
    return _rendered("compare.html.jinja", scripts=("compare.js",), data=data, title="Compare two points", up="")


def _newest(of_work: Collection[Sequence[Series]]) -> int:
    """Of so many points of each series, the newest, there are intervals with all others of equal work."""
    newest = max((len(one.points) for alike in of_work for one in alike), default=0)
    while sum(sum(min(len(one.points), newest) for one in alike) ** 2 for alike in of_work) > 2 * _MOST_PAIRS:
        newest -= 1
    return newest


def _intervals(alike: Sequence[Series], newest: int) -> Iterator[tuple[str, list[float]]]:
    """Of the rate of the first of two points over that of the second, by their ids; nothing of single runs."""
    points = [point for one in alike for point in one.points[max(0, len(one.points) - newest) :]]
    for one, other in combinations_with_replacement(points, 2):
        ratio = compare(one.measured, other.measured).ratio
        if ratio.low is not None and ratio.high is not None:
            yield f"{one.id} {other.id}", [float(f"{bound:.5g}") for bound in (ratio.low, ratio.high)]


def _compared(series: Series) -> dict[str, Any]:
    """With names that tell series apart that look alike."""
    facts = series.facts
    return {
        "id": series.id,
        "work": facts["work"],
        "name": visible(f"{series.name}, {facts['workload']}, {facts['machine']} ({series.id[:4]})", _LONGEST),
        "facts": _plain(_shown(series)),
        "points": [_compared_point(point) for point in series.points],
    }


def _compared_point(point: Point) -> list[Any]:
    logs = log_rates(point.measured)
    label = f"{moment(point.started)}, {interval(point.rate)}, {counted(len(logs), 'run')}, {point.folder}"
    return [
        visible(label, _LONGEST), len(logs), mean_of(logs), visible(point.folder, _LONGEST),
        point.versions, dict(point.phases), point.id,
    ]  # fmt: skip


def _shown(series: Series) -> dict[str, Any]:
    """Its facts, by what pages call them."""
    return {name.replace("_", " "): value for name, value in series.facts.items() if name not in _UNSHOWN_FACTS}


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {visible(name): visible(value) if isinstance(value, str) else value for name, value in facts.items()}


def _percent(ratio: float) -> str:
    """``-12 %`` of a ratio of 0.88; of ten times the rate ``x 10``."""
    if ratio >= 3:
        return f"x {number(ratio, 2)}"
    change = 100 * (ratio - 1)
    return f"{change:+.{0 if abs(change) >= 9.95 else 1}f} %"


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"


def _day(unix_seconds: float | None) -> str:
    return moment(unix_seconds)[:10]


def _rendered(template: str, scripts: Sequence[str] = (), data: Any = None, **values: Any) -> str:
    style = source(_TEMPLATES / "site.css")
    script = "\n".join(source(_TEMPLATES / name) for name in scripts)
    return _environment().get_template(template).render(
        **values,
        policy=Markup(policy([script], [style])),
        style=Markup(style),
        script=Markup(script),
        data=Markup("" if data is None else in_script(data)),
    )  # fmt: skip


def _feed(title: str, series: Sequence[Series], base: str | None) -> str:
    """Atom (RFC 4287), the latest regression first."""
    found = [(one, change) for one in series for change in one.changes if change.direction == "slower"]
    found.sort(key=lambda pair: (-(pair[1].began or 0.0), pair[0].id))
    return _environment().get_template("feed.xml.jinja").render(
        title=title,
        base=base,
        updated=max((change.began for _, change in found if change.began is not None), default=None),
        entries=found[:_MOST_ENTRIES],
    )  # fmt: skip


def _stamp(unix_seconds: float | None) -> str:
    stamp = moment(unix_seconds, "%Y-%m-%dT%H:%M:%SZ")
    return _NO_TIME if stamp == UNKNOWN else stamp


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        # also what would turn, hide or end a line; markup of this module's own is left as it is
        finalize=lambda value: visible(value, _LONGEST) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(exact=_exact, percent=_percent, number=number, interval=interval)
    environment.filters.update(moment=moment, day=_day, stamp=_stamp, uuid=lambda words: str(uuid5(_NAMESPACE, words)))
    environment.filters.update(named=_change_title, told=_change_text, drawn=picture, sparks=spark)
    return environment
