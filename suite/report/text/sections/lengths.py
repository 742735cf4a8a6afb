"""Uneven samples: how long they are, and what padding and the longest of them cost."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from suite.report.facts.model import ReportModel
from suite.report.facts.network import row_names
from suite.report.facts.pool import Row
from suite.report.facts.rollout import LengthFacts, Unevenness
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, number, percent
from suite.report.text.columns import LABEL, Shown, table_of
from suite.report.text.section import Block, Section

_WHAT = "Tokens of the samples of one iteration, the same in every iteration and on every backend and layout."
_COST = (
    "Padded: share of the trained positions. Idle slots: share of the token steps that samples which have ended wait "
    "for the longest one of their replica, by the lengths alone. Lost: what a complete mean sample waits for it. Idle "
    "ranks: what ranks wait for the slowest one."
)
_LENGTHS = tuple(
    Column(title, right)
    for title, right in (
        *(("rows", False), ("workload", False), ("samples", True), ("tokens of", False)),
        *((title, True) for title in ("mean", "p50", "p90", "p99", "longest", "at the cap %")),
    )
)


def _blocks(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.unevenness]
    if not rows:
        return
    yield _WHAT
    yield Table(_LENGTHS, tuple(_length_cells(rows)))
    yield _COST
    columns: list[Shown] = [
        (Column("batches", False), _shown(_batches)),
        (Column("padded %"), _shown(lambda one: percent(one.padded_share))),
        (Column("idle slots %"), _shown(lambda one: percent(one.idle_slot_share))),
        (Column("lost s"), _shown(lambda one: number(one.idle_slot_seconds))),
        (Column("lost %"), _lost_share),
        (Column("idle ranks %"), lambda row: UNKNOWN if row.idle is None else percent(row.idle.share)),
    ]
    yield table_of([LABEL, *columns], rows)


def _length_cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Two lines for the rows that share their samples, of which the first alone names them."""
    alike: dict[tuple[str, str], list[tuple[Row, Unevenness]]] = defaultdict(list)
    for row in rows:
        if row.unevenness:
            alike[row.workload, row.lengths_hash].append((row, row.unevenness))
    for (workload, _), members in alike.items():
        one = members[0][1]
        names = row_names([row.number for row, _ in members])
        yield (names, inline(workload), str(one.samples), "prompts", *_figures(one.prompt))
        yield ("", "", "", "responses", *_figures(one.response))


def _figures(one: LengthFacts) -> tuple[str, ...]:
    whole = (f"{tokens:,}" for tokens in (one.p50, one.p90, one.p99, one.most))
    return number(one.mean), *whole, percent(one.at_cap)


def _shown(show: Callable[[Unevenness], str]) -> Callable[[Row], str]:
    return lambda row: show(row.unevenness) if row.unevenness else UNKNOWN


def _batches(one: Unevenness) -> str:
    return f"{'packed' if one.packed else 'padded'}{', balanced' if one.balanced else ''}"


def _lost_share(row: Row) -> str:
    lost = row.unevenness.idle_slot_seconds if row.unevenness else None
    return percent(lost / row.iteration_seconds) if lost is not None and row.iteration_seconds else UNKNOWN


SECTION = Section("Lengths and padding", _blocks, is_beside=True)
