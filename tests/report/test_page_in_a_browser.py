"""The page in a real Chromium: three widths, light and dark, by keyboard alone, by axe's rules, with hostile runs."""

import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from suite.report.facts.model import build
from suite.report.page.output import write_page
from suite.report.reading import read_entries
from suite.spec.layout import Layout
from tests.browser import Tab, looks_well
from tests.report import entries as made
from tests.report import reports
from tests.report.test_page import HOSTILE
from tests.synthetic import make_bundle, synthetic_manifest, unlike
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

CARD = "document.querySelector('.card:not([hidden])')"
#: What nobody has scrolled to is drawn as before printing.
DRAW = "window.dispatchEvent(new Event('beforeprint'))"
ROWS = f"({DRAW}, document.querySelector('#part-throughput tbody').children.length)"
RUNS = "document.querySelectorAll('#runs tbody tr').length"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles with events on one and two ranks of two backends, and runs that failed."""
    folder = tmp_path_factory.mktemp("page")
    for backend, seconds, sharded in (
        ("deepspeed", 1.0, {"zero_stage": 2}),
        ("megatron", 1.3, {"distributed_optimizer": True}),
    ):
        for ranks, repeat in ((1, 1), (1, 2), (2, 1), (2, 2)):
            layout = Layout(devices_per_node=ranks, data=ranks, **sharded)
            manifest = synthetic_manifest(backend=backend, layout=layout, repeat=repeat)
            make_bundle(folder / "runs", manifest, unlike([seconds / ranks**0.8] * 10, 3 * ranks + repeat))
    failed = {"failure": "oom_device", "phase": "train", "iteration": 1, "evidence": ["CUDA out of memory", "and more"]}
    doomed = synthetic_manifest(layout=Layout(devices_per_node=4, data=4))
    make_bundle(folder / "runs", doomed, status="failed", failure=failed, completed=1)
    entries = read_entries([folder / "runs"]).entries
    write_page(build(entries), folder / "page.html")
    return folder / "page.html"


def opened(tab: Tab, page: Path, width: int = 1280, theme: str = "light") -> None:
    """With every picture and table."""
    tab.look(width, 900, theme)
    tab.open(page)
    tab.value(DRAW)
    tab.settle()


@pytest.mark.parametrize("width", [360, 1280, 2560])
def test_it_is_whole_and_has_no_violation(tab: Tab, page: Path, width: int) -> None:
    opened(tab, page, width)
    for pictures in (".plot-box", ".plot-box svg"):
        tab.has(f"document.querySelectorAll('{pictures}').length", 7)
    for theme in ("light", "dark"):
        looks_well(tab, width, theme)
    assert tab.troubles() == []


def test_everything_is_done_with_the_keyboard(tab: Tab, page: Path) -> None:
    def tab_to(selector: str) -> None:
        for _ in range(150):
            if tab.value(f"document.activeElement.matches({selector!r})"):
                return
            tab.press("Tab")
        raise AssertionError(f"Tab never came to {selector}")

    opened(tab, page)
    tab.press("Tab")
    tab.has("document.activeElement.className", "skip")
    tab.has(ROWS, 5)
    tab_to("#selection summary")
    for key in ("Enter", "Tab", " "):
        tab.press(key)
    tab.until("document.querySelector('#selection details').open")
    tab.until(f"{ROWS} < 5")
    tab.press("Escape")
    tab.until("!document.querySelector('#selection details').open")
    tab.has("document.activeElement.localName", "summary")

    tab_to("#any-figure .plot-box")
    tab.press("ArrowDown")
    tab.press("ArrowDown")
    tab.until(f"{CARD} && {CARD}.innerText.includes('R2') && {CARD}.innerText.includes('samples/s')")
    tab.until("document.querySelector('[aria-live]').textContent.includes('R2')")
    tab.value("scrollTo(0, 0)")
    tab.look(1280, 300, "light")
    tab.press("End")
    tab.until("scrollY > 0")
    assert tab.value(f"Boolean({CARD})"), "the card stays while the page scrolls"
    tab.press("Escape")
    tab.until(f"!{CARD}")

    tab_to("#part-throughput th button")
    tab.press("Enter")
    tab.has("document.querySelector('#part-throughput th').getAttribute('aria-sort')", "ascending")
    assert tab.troubles() == []


def test_runs_are_found_by_words(tab: Tab, page: Path) -> None:
    opened(tab, page)
    tab.value("document.querySelector('#runs input').focus()")
    tab.type("oom failed nothing-has-this")
    tab.has(RUNS, 0)
    tab.value(
        "const box = document.querySelector('#runs input'); box.value = 'failed'; box.dispatchEvent(new Event('input'))"
    )
    tab.has(RUNS, 1)


def test_pictures_and_figures_can_be_saved(tab: Tab, page: Path, tmp_path: Path) -> None:
    opened(tab, page, theme="dark")
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for name in ("CSV", "SVG", "PNG"):
        buttons = "[...document.querySelectorAll('#any-figure .actions button')]"
        tab.value(f"{buttons}.find(one => one.innerText === '{name}').click()")
    wait_until(lambda: {path.name for path in tmp_path.iterdir()} == {"figure.csv", "figure.svg", "figure.png"})
    svg = (tmp_path / "figure.svg").read_text()
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and "var(" not in svg and "<style" not in svg
    lines = (tmp_path / "figure.csv").read_text().splitlines()
    assert lines[0].startswith("row,size,ranks,backend") and len(lines) == 1 + 5
    data = (tmp_path / "figure.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG") and width == 2 * float(root.get("width", 0)) and height > 100
    assert tab.troubles() == []


def test_nothing_that_a_run_wrote_is_run(tab: Tab, tmp_path: Path) -> None:
    entries = [*reports.hostile(HOSTILE), *made.repeats(2, size="3M")]
    write_page(build(entries, title=HOSTILE, caveats=[HOSTILE]), tmp_path / "page.html")
    opened(tab, tmp_path / "page.html")
    tab.until("document.body.innerText.includes('onerror=pwned=1')")
    assert tab.value("typeof pwned") == "undefined"
    assert tab.value("document.querySelectorAll('img, iframe, object, [onerror], [onload]').length") == 0
    assert tab.troubles() == []
