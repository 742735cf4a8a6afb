"""A site in memory: its pages, and what is told of it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.bundle.archive.opening import Opened
from suite.bundle.cache.survey import Surveyed
from suite.report.site.history import Series, histories
from suite.report.site.output import Summary
from suite.report.site.pages import Site, change_title, compare_page, feed, index_page, series_page
from suite.report.site.runs import Gathered, gather


def make_site(
    bundles: Sequence[Surveyed], names: Mapping[Path, str], places: Opened, title: str
) -> tuple[Gathered, Site, Summary]:
    """What it is made of, itself, and what is told of it. ``names``: what pages call each folder."""
    found = gather(bundles, places.holds)
    found.told = list(map(places.shown, found.told))
    series = histories(found, names)
    return found, Site(title, series, found.versions, tuple(found.told)), _summary(found, series)


def made_pages(site: Site, base: str | None) -> Iterator[tuple[str, str]]:
    yield "index.html", index_page(site)
    yield "compare.html", compare_page(site)
    yield "feed.xml", feed(site, base)
    for one in site.series:
        yield f"series/{one.id}.html", series_page(site, one)


def _summary(found: Gathered, series: Sequence[Series]) -> Summary:
    changes = [(one, change) for one in series for change in one.changes]
    changes.sort(key=lambda pair: -(pair[0].points[pair[1].after].started or 0.0))
    return Summary(
        runs=len(found.runs),
        points=sum(len(one.points) for one in series),
        regressions=sum(change.direction == "slower" for _, change in changes),
        changes=[f"{one.name} on {one.facts['machine']}: {change_title(one, change)}" for one, change in changes],
        series=[_series_json(one) for one in series],
        told=found.told,
    )


def _series_json(series: Series) -> dict[str, Any]:
    return {
        "id": series.id,
        "name": series.name,
        "facts": dict(series.facts),
        "points": len(series.points),
        "runs": series.runs,
        "noise": series.noise,
        "changes": [
            {
                "direction": change.direction,
                "ratio": {"value": change.ratio.value, "low": change.ratio.low, "high": change.ratio.high},
                "probability": change.probability,
                "begins": _point_json(series, change.after),
                "earliest": _point_json(series, change.first),
                "latest": _point_json(series, change.last),
                "versions": [list(one) for one in change.versions],
            }
            for change in series.changes
        ],
    }


def _point_json(series: Series, place: int) -> dict[str, Any]:
    point = series.points[place]
    return {"folder": point.folder, "started": point.started, "runs": list(point.run_ids)}
