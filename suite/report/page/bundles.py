"""What the page has of single runs: where each bundle is, what was around it, why it failed, and one iteration of it,
rank by rank: who worked, who waited, and what it held."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from suite.bundle.archive.opening import bundle_place
from suite.bundle.event_fields import Iteration, Memory, Phase
from suite.bundle.events import Events
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.report.facts.entry import Entry
from suite.report.facts.environment import facts_of
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, moment

_MOST_LINES, _MOST_FAILURES = 40, 100
#: Runs whose events are read, ranks that are shown of each, and bars of all together: so that pages stay small.
MOST_RUNS, MOST_RANKS, MOST_BARS = 240, 32, 40_000
_MICRO = 6


def href(path: str, page: Path) -> str:
    """A bundle as a page links to it: relative, so that both can be moved together, and never of another scheme."""
    near = Path(os.path.relpath(path, page.parent)).as_posix()
    return f"{quote(os.fsencode(near if near.startswith('.') else f'./{near}'))}/"


def runs_table(rows: Sequence[Row], page: Path) -> dict[str, Any]:
    ordered = [(row, entry) for row in rows for entry in row.entries]
    titles = ("row", "run", "started", "status", "validity", "reasons", "digest of the bundle")
    return {
        "titles": titles,
        "rights": [False] * len(titles),
        "rows": [_run_cells(row, entry) for row, entry in ordered],
        "links": {"column": 1, "hrefs": [href(entry.path, page) for _, entry in ordered]},
    }


def _run_cells(row: Row, entry: Entry) -> tuple[str, ...]:
    record, validity = entry.record, entry.record.validity
    doubts = (validity.status, visible("; ".join(validity.reasons), 400)) if validity else ("-", "")
    digest = (entry.digest or "-")[: len("sha256:") + 16]
    return (row.name, visible(record.run.id), moment(record.run.started), record.status, *doubts, digest)


def environments(rows: Sequence[Row]) -> tuple[list[dict[str, str]], dict[int, int]]:
    """Facts as `suite compare` reads them, each distinct set once, and by number of the row its place among these."""
    places: dict[tuple[tuple[str, str], ...], int] = {}
    of_row = {}
    for row in rows:
        facts = facts_of([entry.record for entry in row.entries])
        shown = tuple((visible(name), visible(", ".join(values), 400)) for name, (_, values) in facts.items())
        of_row[row.number] = places.setdefault(shown, len(places))
    return [dict(shown) for shown in places], of_row


def evidence_of(model: ReportModel, page: Path) -> Iterator[dict[str, Any]]:
    """Of each line of the failures' table, as far as somebody reads them."""
    for one in model.failures[:_MOST_FAILURES]:
        lines = one.failure.evidence
        yield {
            "row": one.row.name,
            "kind": one.failure.kind,
            "lines": [visible(line, 1000) for line in lines[:_MOST_LINES]],
            "left_out": max(0, len(lines) - _MOST_LINES),
            "bundles": [(visible(run.record.run.id), href(run.path, page)) for run in one.entries[:_MOST_LINES]],
        }


class Bar(NamedTuple):
    """A phase on one rank, in seconds: from ``start`` after the iteration's, ``work``, then ``wait`` for the others."""

    phase: str
    start: float
    work: float
    wait: float


class RankTrace(NamedTuple):
    """``held``: phase -> bytes at its peak, allocated on a GPU and resident on a CPU."""

    rank: int
    bars: tuple[Bar, ...]
    held: dict[str, int]


class Trace(NamedTuple):
    """``iteration``: that whose seconds are the median of the run's counted ones. ``ranks``: of how many ``shown`` are
    some."""

    row: int
    run: str
    iteration: int
    seconds: float
    ranks: int
    shown: tuple[RankTrace, ...]


def traces_of(rows: Sequence[Row]) -> tuple[list[Trace], str]:
    """Of the first good run of each row; and what was left out, as a line.

    Asynchronous runs and those whose events cannot be read have none.
    """
    found: list[Trace] = []
    rows = [row for row in rows if row.runs_ok and not row.setting.asynchronous]
    bars = 0
    for trace in filter(None, (_trace(row, row.shown) for row in rows[:MOST_RUNS])):
        bars += sum(len(rank.bars) for rank in trace.shown)
        if bars > MOST_BARS:
            break
        found.append(trace)
    left = len(rows) - len(found)
    return found, f"Iterations of {counted(left, 'more row')} are in their bundles alone." if left else ""


def _trace(row: Row, entry: Entry) -> Trace | None:
    if not entry.record.iterations.seconds:
        return None
    iteration = median_iteration(entry.record)
    try:
        events = Bundle(bundle_place(entry.path)).events(entry.manifest)
    except (DamagedBundle, OSError):
        return None
    ranks = [one for rank in sorted(events.ranks) if (one := _rank(events, rank, iteration)).bars]
    if not ranks:
        return None
    seconds = entry.record.iterations.seconds[iteration]
    return Trace(row.number, visible(entry.record.run.id), iteration, seconds, len(ranks), _few(ranks))


def median_iteration(record: Record) -> int:
    """Of the iterations that count, that of the median in seconds; of an even number the quicker one in the middle."""
    seconds = record.iterations.seconds
    ordered = sorted(record.counted or range(len(seconds)), key=lambda at: (seconds[at], at))
    return ordered[(len(ordered) - 1) // 2]


def _rank(events: Events, rank: int, iteration: int) -> RankTrace:
    """By the rank's own clock: where an iteration's event was written, its seconds before are its start."""
    done = next((one for one in events.of(rank, Iteration) if one.iteration == iteration), None)
    timed = [one for one in events.of(rank, Phase) if one.iteration == iteration]
    if done is None or not timed:
        return RankTrace(rank, (), {})
    begin = done.time - done.seconds
    bars, before = [], 0.0
    for one in timed:
        start = max(before, one.time - begin - one.seconds - one.wait_seconds)
        times = (round(seconds, _MICRO) for seconds in (start, one.seconds, one.wait_seconds))
        bars.append(Bar(visible(one.phase, 40), *times))
        before = start + one.seconds + one.wait_seconds
    held = {
        visible(one.phase, 40): one.peak_allocated_bytes
        for one in events.of(rank, Memory)
        if one.iteration == iteration and one.peak_allocated_bytes is not None
    }
    return RankTrace(rank, tuple(bars), held)


def _few(ranks: Sequence[RankTrace]) -> tuple[RankTrace, ...]:
    """All, or as many as can be told apart: evenly from the one that works least to the one that works longest."""
    if len(ranks) <= MOST_RANKS:
        return tuple(ranks)
    by_work = sorted(ranks, key=lambda one: sum(bar.work for bar in one.bars))
    step = (len(ranks) - 1) / (MOST_RANKS - 1)
    return tuple(sorted(by_work[round(place * step)] for place in range(MOST_RANKS)))
