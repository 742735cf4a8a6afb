"""A feed of regressions: an entry for each change of level to a lower rate, by which a reader is told of it once."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid5

from suite.report.formatting.numbers import UNKNOWN, moment
from suite.report.site.history import LevelChange, Series
from suite.report.site.pages import Site, change_anchor, change_text, change_title, rendered_feed

#: Ids are made of what they are of, so that the same change keeps its own on every machine.
_NAMESPACE = UUID("4b0f3f5e-6c1b-4b7e-9d3a-2f1d8c5a7e90")
_MOST_ENTRIES = 200
_NO_TIME = "1970-01-01T00:00:00Z"


def feed(site: Site, base: str | None) -> str:
    """Atom (RFC 4287), the latest regression first. ``base``: where the site will be, for links that need it."""
    found = [(one, change) for one in site.series for change in one.changes if change.direction == "slower"]
    found.sort(key=lambda pair: (-(_began(*pair) or 0.0), pair[0].id))
    return rendered_feed(
        title=site.title,
        base=base,
        id=str(uuid5(_NAMESPACE, base or site.title)),
        updated=_stamp(max((began for pair in found if (began := _began(*pair)) is not None), default=None)),
        entries=[_entry(series, change) for series, change in found[:_MOST_ENTRIES]],
    )


def regressions(series: Sequence[Series]) -> int:
    return sum(change.direction == "slower" for one in series for change in one.changes)


def _entry(series: Series, change: LevelChange) -> dict[str, str]:
    anchor = change_anchor(series, change)
    return {
        "title": f"{series.name}: {change_title(series, change)}",
        "id": str(uuid5(_NAMESPACE, f"{series.id} {anchor}")),
        "updated": _stamp(_began(series, change)),
        "link": f"series/{series.id}.html#{anchor}",
        "text": f"{series.facts['machine']}. {change_text(series, change)}",
    }


def _began(series: Series, change: LevelChange) -> float | None:
    return series.points[change.after].started


def _stamp(unix_seconds: float | None) -> str:
    stamp = moment(unix_seconds, "%Y-%m-%dT%H:%M:%SZ")
    return _NO_TIME if stamp == UNKNOWN else stamp
