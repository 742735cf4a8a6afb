"""How fast a page over 10,000 runs opens and filters in Chromium: ``python -m benchmarks.page_speed``.

The runs are made by hand, without bundles: what is measured is the page, not the reading of results.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.page.output import write_page
from tests.browser import Tab, browser
from tests.report.entries import entry

RUNS = 10_000
#: Rows -> repeats of each.
SHAPES = {250: 40, 2_500: 4}
TIMES = 5
OPEN_SECONDS, FILTER_SECONDS = 2.0, 0.1
#: From the navigation's start until two frames after everything in view was drawn, by the browser's own clock.
_DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
#: Seconds from a change until two frames after it: the second begins when the first has been painted.
_TIMED = (
    "new Promise(done => {{ const begin = performance.now(); {change};"
    " requestAnimationFrame(() => setTimeout(() => done((performance.now() - begin) / 1000))); }})"
)
_PICK = "document.querySelectorAll('#selection details')[{facet}].querySelectorAll('input')[{at}].click()"
_TYPE = (
    "const box = document.querySelector('#runs input[type=search]'); box.value = '{words}';"
    " box.dispatchEvent(new Event('input'))"
)


def runs(rows: int, repeats: int) -> Iterator[Entry]:
    """``rows`` configurations of two backends on 1 to 16 ranks."""
    for number in range(rows):
        backend, ranks = ("deepspeed", "megatron")[number % 2], 2 ** (number // 2 % 5)
        size, rate = f"S{number // 10}", 20.0 + number % 37
        for repeat in range(1, repeats + 1):
            yield entry(backend=backend, ranks=ranks, size=size, rate=rate * ranks**0.8, repeat=repeat)


def measure(tab: Tab, page: Path) -> tuple[float, float, float]:
    """Seconds to open, to choose rows, and to filter the table of runs."""
    opened, chosen, filtered = [], [], []
    for attempt in range(TIMES):
        tab.open(page)
        opened.append(tab.value(_DRAWN) / 1000)
        tab.settle()
        for facet in (0, 1):
            chosen.append(tab.value(_TIMED.format(change=_PICK.format(facet=facet, at=attempt))))
        tab.value("document.getElementById('runs').scrollIntoView()")
        tab.settle()
        tab.until("document.querySelector('#runs input[type=search]')")
        for words in ("r3", "megatron r1", "nothing of this"):
            filtered.append(tab.value(_TIMED.format(change=_TYPE.format(words=words))))
    return median(opened), max(chosen), max(filtered)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as tab:
        tab.look(1280, 900, "light")
        for rows, repeats in SHAPES.items():
            entries = list(runs(rows, repeats))
            begin = time.perf_counter()
            page = Path(folder) / f"{rows}.html"
            size = write_page(build(entries), page)
            made = time.perf_counter() - begin
            opened, chosen, filtered = measure(tab, page)
            print(
                f"{RUNS:,} runs in {rows:,} rows: made in {made:.1f} s, {size}; opens in {opened:.2f} s "
                f"(at most {OPEN_SECONDS}), rows chosen in {1000 * chosen:.0f} ms and table filtered in "
                f"{1000 * filtered:.0f} ms, the slowest of {2 * TIMES} and {3 * TIMES} "
                f"(at most {1000 * FILTER_SECONDS:.0f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
