"""Asynchronous trainers: the steady period, what was consumed in it and how old that was, and who worked how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from suite.report.facts.asynchronous import Asynchronous
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, interval, number, percent
from suite.report.text.columns import LABEL, Shown, label, rate, table_of
from suite.report.text.section import Block, Section
from suite.stats.intervals import Interval

_WHAT = (
    "An iteration of these rows is the period from one publication of weights to the next, while samples for later "
    "ones are generated. What filled the pipeline before the first is in none. Rates count the samples that were "
    "consumed. Staleness: the share of them that were so many publications old; the layout's async is the most that is "
    "allowed. Exposed: what training waited for samples."
)
_ROLES = (
    "How long a device of each role worked in a period, in the mean over its devices, and how long it had nothing to "
    "do. Roles work at the same time, so their seconds do not add up:"
)


def _blocks(model: ReportModel) -> Iterator[Block]:
    rows = [(row, row.asynchronous) for row in model.rows if row.asynchronous]
    if not rows:
        return
    yield _WHAT
    columns: list[Shown] = [
        (Column("period s [95 %]"), lambda row: interval(_period(row))),
        (Column("consumed samples/s [95 %]"), rate),
        (Column("exposed s"), _shown(lambda one: number(one.exposed))),
        (Column("staleness", False), _shown(_histogram)),
    ]
    yield table_of([LABEL, *columns], [row for row, _ in rows])
    yield _ROLES
    titles = (*(Column(title) for title in ("devices", "busy s", "busy % [95 %]", "idle % [95 %]")),)
    cells = [
        (
            *(label(row), role.name, str(role.ranks), number(role.busy_seconds)),
            *(interval(share.scaled(100), bound_digits=1) for share in (role.busy_share, role.idle_share)),
        )
        for row, one in rows
        for role in one.roles
    ]
    yield Table((Column("row", False), Column("role", False), *titles), tuple(cells))


def _shown(show: Callable[[Asynchronous], str]) -> Callable[[Row], str]:
    return lambda row: show(row.asynchronous) if row.asynchronous else UNKNOWN


def _period(row: Row) -> Interval | None:
    """Seconds, by the rate and the samples of a period."""
    rate, samples = row.samples_per_second, row.samples_per_iteration
    if rate is None or samples is None:
        return None
    low, high = (None if bound is None else samples / bound for bound in (rate.high, rate.low))
    return Interval(samples / rate.value, low, high)


def _histogram(one: Asynchronous) -> str:
    """``0: 4 %, 1: 96 %``."""
    return ", ".join(f"{age}: {percent(share)} %" for age, share in one.staleness)


SECTION = Section("Asynchronous trainers", _blocks, is_beside=True)
