"""Who is faster, among rows of equal work under equal conditions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK, Setting
from suite.report.facts.model import ReportModel
from suite.report.facts.ranking import Group, RankedRow
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table, grid
from suite.report.formatting.numbers import counted, interval
from suite.report.text.columns import Shown, varying
from suite.report.text.section import Section


def _blocks(model: ReportModel) -> Iterator[str]:
    if not model.ranking.groups:
        yield _unranked(model)
        return
    yield "Rows of one size and rank count did equal work under equal conditions; nothing else is compared."
    has_headings = len({row.setting for row in model.rows}) > 1
    by_setting: dict[Setting, list[Group]] = defaultdict(list)
    for group in model.ranking.groups:
        by_setting[group.setting].append(group)
    for setting in sorted(by_setting):
        yield f"### {_heading(setting)}" if has_headings else ""
        yield grid(_table(by_setting[setting]))


def _unranked(model: ReportModel) -> str:
    if not any(row.measured for row in model.rows):
        return "No run succeeded with an iteration that counts, so there is nothing to rank."
    kind = " of one kind" if model.beside else ""
    return f"No two configurations{kind} did equal work under equal conditions, so nothing is ranked."


def _heading(setting: Setting) -> str:
    whose = (
        "Engine backends (the suite's own PPO iteration)"
        if setting.kind == "engine"
        else "Trainer backends (the stack's own trainer)"
    )
    told = setting.device == "cpu" or setting.threads_per_rank > 1
    threads = f", {counted(setting.threads_per_rank, 'thread')} per rank" if told else ""
    return f"{whose}: {setting.track}, {setting.precision} on {setting.device}{threads}, machine {setting.machine}"


def _table(groups: Sequence[Group]) -> Table:
    """Groups of one setting, one after the other; only the first row of each has size and ranks."""
    members = [(group, ranked) for group in groups for ranked in group.places]
    extra = varying([ranked.row for _, ranked in members])
    columns = (
        *(Column("size", False), Column("ranks")),
        *(Column(title, False) for title in ("row", "backend", "layout")),
        *(column for column, _ in extra),
        *(Column(title) for title in ("runs", "samples/s [95 %]", "ratio to best [95 %]")),
        Column("verdict", False),
    )
    rows = tuple(_cells(group, ranked, extra) for group, ranked in members)
    notes = []
    if any(ranked.verdict == "too few runs" for _, ranked in members):
        notes.append(
            f"Too few runs: {RUNS_TO_PUBLISH} are needed to publish a figure and {RUNS_TO_RANK} to rank; "
            "the order shown is not a result."
        )
    if any(ranked.provisional for _, ranked in members):
        notes.append(f"Provisional: {RUNS_TO_PUBLISH} runs are enough to publish, but it takes {RUNS_TO_RANK} to rank.")
    if any(not ranked.in_turns for _, ranked in members):
        notes.append(
            "Not in turns: all runs of this row came before or after those of the best, so their ratio "
            "includes whatever changed on the machine in between."
        )
    return Table(columns, rows, tuple(notes))


def _cells(group: Group, ranked: RankedRow, extra: Sequence[Shown]) -> tuple[str, ...]:
    row, first = ranked.row, ranked is group.places[0]
    return (
        *((inline(group.size), str(group.ranks)) if first else ("", "")),
        *(row.name, inline(row.backend), row.layout),
        *(show(row) for _, show in extra),
        *(str(len(row.measured)), interval(row.samples_per_second)),
        "1" if first else interval(ranked.ratio, bound_digits=1),
        ranked.verdict + _remarks(ranked),
    )


def _remarks(ranked: RankedRow) -> str:
    remarks = (["equal within 5 %"] if ranked.equivalent else []) + (["provisional"] if ranked.provisional else [])
    remarks += [] if ranked.in_turns else ["not in turns"]
    return f" ({', '.join(remarks)})" if remarks else ""


SECTION = Section("Ranking", _blocks)
