"""What several tests of views stand on."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser import Tab, browser

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
#: Of axe: all of WCAG 2.2 A and AA and more; in the dark what colours can change alone.
_RULES = {
    "light": "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']",
    "dark": "['color-contrast', 'link-in-text-block']",
}
#: Lines of what something prints on a terminal of so many columns; None: into a pipe.
Columns = Callable[[int | None, Callable[[], None]], list[str]]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Columns:
    """Without colours and empty lines."""

    def printed(count: int | None, show: Callable[[], None]) -> list[str]:
        if count is None:
            monkeypatch.delenv("COLUMNS", raising=False)
        else:
            monkeypatch.setenv("COLUMNS", str(count))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: count is not None)
        show()
        plain = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        return [line.rstrip() for line in plain.splitlines() if line.strip()]

    return printed


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A page of a browser of this module's own."""
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def violations(tab: Tab, theme: str, within: str = "document") -> list[str]:
    """Of axe's rules: each with the first places, and what to do about it. All that can be opened is open."""
    if tab.value("typeof axe") == "undefined":
        tab.value(AXE.read_text())
    tab.value("document.querySelectorAll('details').forEach(one => (one.open = true))")
    place = "node => `${node.html} ${node.failureSummary}`"
    told = f"one => `${{one.id}}: ${{one.nodes.slice(0, 3).map({place}).join('; ')}}`"
    run = f"axe.run({within}, {{runOnly: {_RULES[theme]}}}).then(done => done.violations.map({told}))"
    return tab.value(run)


def is_whole(tab: Tab, width: int, theme: str) -> None:
    """The page fits this width, is light or dark as asked for, has no violation, and told of no trouble."""
    tab.look(width, 900, theme)
    tab.until(f"document.documentElement.scrollWidth <= {width}")
    is_dark = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(one => one < 60)"
    tab.has(is_dark, theme == "dark")
    assert tab.troubles() == [] and violations(tab, theme) == []
