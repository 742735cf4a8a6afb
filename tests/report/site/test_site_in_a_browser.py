"""The site in a real Chromium: narrow and wide, light and dark, by axe's rules, and its figures against Python's."""

import json
from pathlib import Path

import pytest

from suite.bundle.archive.opening import Opened
from suite.bundle.cache.survey import survey
from suite.report.site.history import Point, histories
from suite.report.site.output import write_site
from suite.report.site.runs import gather
from suite.stats.compare import compare
from tests.browser import Tab, looks_well
from tests.report.site.nights import night, nights

pytestmark = pytest.mark.browser

#: A site's scripts have run when the page is complete.
COMPLETE = "true"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two backends over twelve nights, one of which got slower; a night with a single run, and one that failed."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUITE_CACHE", str(folder / "cache"))
        nights(folder / "runs", [1.0] * 8 + [1.2] * 4, ["a" * 40] * 8 + ["b" * 40] * 4, repeats=3)
        nights(folder / "runs", [1.1] * 6, backend="megatron", repeats=2)
        night(folder / "runs", 12, 1.2, repeats=1)
        failure = {"failure": "oom_device", "phase": "train", "iteration": 1, "evidence": ["out of memory"]}
        night(folder / "runs", 13, 1.2, repeats=1, failure=failure)
        write_site(folder / "site", [folder / "runs"])
    return folder / "site"


def compared(before: Point, after: Point) -> list[float]:
    """The ratio of the later rate to the earlier one, with its bounds where there are any."""
    found = compare(after.measured, before.measured).ratio
    return [one for one in (found.value, found.low, found.high) if one is not None]


def points_of(site: Path) -> dict[str, Point]:
    folder = site.parent / "runs"
    every = histories(gather(survey([folder])[0], Opened((folder,))).runs, {folder: "runs"})
    return {f"{series.id} {point.id}": point for series in every for point in series.points}


def pages(site: Path) -> list[Path]:
    return [site / "index.html", site / "compare.html", *sorted((site / "series").glob("*.html"))]


@pytest.mark.parametrize("width", [360, 1280])
def test_every_page_is_whole_and_has_no_violation(tab: Tab, site: Path, width: int) -> None:
    assert len(pages(site)) == 4
    for page in pages(site):
        tab.look(width, 900, "light")
        tab.open(page, COMPLETE)
        for theme in ("light", "dark"):
            looks_well(tab, width, theme)
        assert tab.troubles() == []


def test_any_two_points_are_compared_as_python_compares_them(tab: Tab, site: Path) -> None:
    """Every pair of points of the two series: ratio and bounds of the page's script against the suite's own."""
    tab.look(1280, 800, "light")
    tab.open(site / "compare.html", COMPLETE)
    data = json.loads(tab.value("document.getElementById('data').textContent"))
    known = points_of(site)
    tested = singles = 0
    for one, first in enumerate(data["series"]):
        for two, second in enumerate(data["series"]):
            if first["work"] != second["work"]:
                continue
            found = tab.value(f"data.series[{one}].points.map(a => data.series[{two}].points.map(b => ratio(b, a)))")
            for before, row in zip(first["points"], found, strict=True):
                for after, shown in zip(second["points"], row, strict=True):
                    expected = compared(known[f"{first['id']} {before[6]}"], known[f"{second['id']} {after[6]}"])
                    assert shown == pytest.approx(expected, rel=1e-3)
                    tested += len(expected) == 3
                    singles += len(expected) == 1
    assert tested > 100 and singles > 10


def test_what_is_chosen_is_in_the_address_and_the_verdict_in_words(tab: Tab, site: Path) -> None:
    tab.look(1280, 800, "light")
    tab.open(site / "compare.html", COMPLETE)
    tab.value("pointA.value = '0'; pointA.dispatchEvent(new Event('change')); null")
    tab.value("pointB.value = '9'; pointB.dispatchEvent(new Event('change')); null")
    verdict = "document.getElementById('verdict') && document.getElementById('verdict').textContent"
    tab.until(f"({verdict}).includes('slower')")
    told, address = tab.value(verdict), tab.value("location.hash")
    tab.open(site / "index.html", COMPLETE)
    tab.value(f"location.href = 'compare.html' + {address!r}; null")
    tab.has(verdict, told)
