"""The page in a real Chromium: three widths, light and dark, by keyboard alone, by axe's rules, with hostile runs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from suite.report.facts.model import build
from suite.report.page.output import write_page
from suite.report.reading import read_entries
from suite.spec.layout import Layout
from tests.browser import Tab, browser
from tests.report import entries as made
from tests.report import test_markdown
from tests.report.test_page import HOSTILE
from tests.synthetic import make_bundle, synthetic_manifest

pytestmark = pytest.mark.browser

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
#: Of axe: all of WCAG 2.2 A and AA and more; in the dark what colours can change alone.
_RULES = {
    "light": "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']",
    "dark": "['color-contrast', 'link-in-text-block']",
}
_EVERY_MENU = "document.querySelectorAll('details').forEach(one => (one.open = true))"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles with events on one and two ranks of two backends, and runs that failed."""
    folder = tmp_path_factory.mktemp("page")
    for backend, seconds in (("deepspeed", 1.0), ("megatron", 1.3)):
        for ranks in (1, 2):
            sharded = {"zero_stage": 2} if backend == "deepspeed" else {"distributed_optimizer": True}
            layout = Layout(devices_per_node=ranks, data=ranks, **sharded)
            for repeat in (1, 2):
                manifest = synthetic_manifest(backend=backend, layout=layout, repeat=repeat)
                make_bundle(folder / "runs", manifest, _noisy(seconds / ranks**0.8, 3 * ranks + repeat))
    failed = {"failure": "oom_device", "phase": "train", "iteration": 1, "evidence": ["CUDA out of memory", "and more"]}
    doomed = synthetic_manifest(layout=Layout(devices_per_node=4, data=4))
    make_bundle(folder / "runs", doomed, status="failed", failure=failed, completed=1)
    entries = read_entries([folder / "runs"]).entries
    return write_page(build(entries), entries, folder / "page.html").path


def _noisy(seconds: float, run: int) -> Callable[[int, int], float]:
    """No two ranks and no two runs alike, as if they were copies."""
    return lambda at, rank: seconds * (1 + 0.01 * (run * at * at % 7)) * (1 - 0.001 * rank)


def drawn(tab: Tab) -> None:
    """Every picture and table, though nobody has scrolled to it: as before printing."""
    tab.value("window.dispatchEvent(new Event('beforeprint'))")
    tab.settle()


def violations(tab: Tab, theme: str, within: str = "document") -> list[str]:
    """Of axe's rules: each with the first places, and what to do about it. All that can be opened is open."""
    if tab.value("typeof axe") == "undefined":
        tab.value(AXE.read_text())
    tab.value(_EVERY_MENU)
    place = "node => `${node.html} ${node.failureSummary}`"
    told = f"one => `${{one.id}}: ${{one.nodes.slice(0, 3).map({place}).join('; ')}}`"
    run = f"axe.run({within}, {{runOnly: {_RULES[theme]}}}).then(done => done.violations.map({told}))"
    return tab.value(run)


def test_axe_finds_what_was_planted(tab: Tab, page: Path) -> None:
    tab.look(1280, 900, "dark")
    tab.open(page)
    planted = (
        "const bad = document.createElement('p'); bad.id = 'planted'; bad.style.color = '#222'; bad.append('unseen')"
    )
    tab.value(f"(() => {{ {planted}; bad.append(document.createElement('button')); document.body.append(bad); }})()")
    within = "document.getElementById('planted')"
    assert [one.split(":")[0] for one in violations(tab, "dark", within)] == ["color-contrast"]
    assert "button-name" in [one.split(":")[0] for one in violations(tab, "light", within)]


@pytest.mark.parametrize("width", [360, 1280, 2560])
def test_it_is_whole_and_has_no_violation(tab: Tab, page: Path, width: int) -> None:
    tab.look(width, 900, "light")
    tab.open(page)
    drawn(tab)
    pictures = tab.value("document.querySelectorAll('.plot-box svg').length")
    assert pictures == tab.value("document.querySelectorAll('.plot-box').length") == 7
    for theme in ("light", "dark"):
        tab.look(width, 900, theme)
        assert tab.value("document.documentElement.scrollWidth") <= width
        is_dark = tab.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(one => one < 60)")
        assert is_dark == (theme == "dark")
        assert tab.troubles() == []
        assert violations(tab, theme) == []


def test_everything_is_done_with_the_keyboard(tab: Tab, page: Path) -> None:
    tab.look(1280, 900, "light")
    tab.open(page)
    tab.press("Tab")
    assert tab.value("document.activeElement.className") == "skip"
    rows = "document.querySelector('#part-throughput tbody').children.length"
    drawn(tab)
    assert tab.value(rows) == 5

    def tab_to(selector: str) -> None:
        for _ in range(150):
            if tab.value(f"document.activeElement.matches({selector!r})"):
                return
            tab.press("Tab")
        raise AssertionError(f"Tab never came to {selector}")

    tab_to("#selection summary")
    tab.press("Enter")
    tab.press("Tab")
    tab.press(" ")
    tab.settle()
    drawn(tab)
    assert tab.value("document.querySelector('#selection details').open")
    assert tab.value(rows) < 5
    tab.press("Escape")
    assert not tab.value("document.querySelector('#selection details').open")
    assert tab.value("document.activeElement.localName") == "summary"

    tab_to("#any-figure .plot-box")
    tab.press("ArrowDown")
    tab.press("ArrowDown")
    told = tab.value("document.querySelector('.card:not([hidden])').innerText")
    assert "R2" in told and "samples/s" in told
    assert "R2" in tab.value("document.querySelector('[aria-live]').textContent")
    tab.value("scrollTo(0, 0)")
    tab.look(1280, 300, "light")
    tab.press("End")
    tab.settle()
    assert tab.value("scrollY > 0 && !document.querySelector('.card').hidden"), "the card stays while the page scrolls"
    tab.press("Escape")
    assert tab.value("document.querySelector('.card').hidden")

    tab_to("#part-throughput th button")
    tab.press("Enter")
    assert tab.value("document.querySelector('#part-throughput th').getAttribute('aria-sort')") == "ascending"
    assert tab.troubles() == []


def test_theme_and_words_can_be_chosen(tab: Tab, page: Path) -> None:
    tab.look(1280, 900, "light")
    tab.open(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.value(ground)
    tab.value("document.querySelector('input[value=dark]').click()")
    assert tab.value(ground) != light
    tab.value("document.querySelector('input[value=system]').click()")
    assert tab.value(ground) == light
    drawn(tab)
    tab.value("document.querySelector('#runs input').focus()")
    tab.type("oom failed nothing-has-this")
    assert tab.value("document.querySelectorAll('#runs tbody tr').length") == 0
    tab.value(
        "const box = document.querySelector('#runs input'); box.value = 'failed'; box.dispatchEvent(new Event('input'))"
    )
    assert tab.value("document.querySelectorAll('#runs tbody tr').length") == 1


def test_a_mark_below_the_pointer_is_told(tab: Tab, page: Path) -> None:
    tab.look(1280, 900, "light")
    tab.open(page)
    drawn(tab)
    tab.value("document.querySelector('[data-chart=iteration]').scrollIntoView({block: 'center'})")
    tab.settle()
    x, y = tab.value(
        "(() => { const box = document.querySelector('[data-chart=iteration] [data-item]').getBoundingClientRect();"
        " return [box.left + box.width / 2, box.top + box.height / 2]; })()"
    )
    tab.point(x, y)
    assert "works" in tab.value("document.querySelector('.card:not([hidden])').innerText")


def test_pictures_and_figures_can_be_saved(tab: Tab, page: Path, tmp_path: Path) -> None:
    tab.look(1280, 900, "dark")
    tab.open(page)
    drawn(tab)
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for name in ("CSV", "SVG", "PNG"):
        buttons = "[...document.querySelectorAll('#any-figure .actions button')]"
        tab.value(f"{buttons}.find(one => one.innerText === '{name}').click()")
    for _ in range(200):
        if {path.suffix for path in tmp_path.iterdir()} == {".csv", ".svg", ".png"}:
            break
        tab.settle()
    svg = (tmp_path / "figure.svg").read_text()
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and "var(" not in svg and "<style" not in svg
    lines = (tmp_path / "figure.csv").read_text().splitlines()
    assert lines[0].startswith("row,size,ranks,backend") and len(lines) == 1 + 5
    data = (tmp_path / "figure.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG") and width == 2 * float(root.get("width", 0)) and height > 100
    assert tab.troubles() == []


def test_it_prints_without_its_controls(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.look(1000, 900, "dark", media="print")
    seen = "getComputedStyle(document.querySelector('{}')).display"
    for hidden in ("#selection", ".contents", ".toolbar", ".actions"):
        assert tab.value(seen.format(hidden)) == "none"
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(tab.call("Page.printToPDF", printBackground=True)["data"]) > 40_000


def test_nothing_that_a_run_wrote_is_run(tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_markdown, "EVIL", HOSTILE)
    entries = [*test_markdown.hostile(), *made.repeats(2, size="3M")]
    written = write_page(build(entries, title=HOSTILE, caveats=[HOSTILE]), entries, tmp_path / "page.html")
    tab.look(1280, 900, "light")
    tab.open(written.path)
    drawn(tab)
    assert tab.value("typeof pwned") == "undefined"
    assert tab.value("document.querySelectorAll('img, iframe, object, [onerror], [onload]').length") == 0
    assert tab.value("document.body.innerText.includes('onerror=pwned=1')")
    assert tab.troubles() == []
