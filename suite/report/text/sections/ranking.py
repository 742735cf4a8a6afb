"""Who is faster, among rows of equal work under equal conditions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK, SUITE_CLOCK, Setting
from suite.report.facts.kind import WorkKind
from suite.report.facts.model import ReportModel
from suite.report.facts.phase_ratios import COMPARED, PhaseRatio
from suite.report.facts.ranking import Group, RankedRow
from suite.report.formatting.escape import inline, prose
from suite.report.formatting.grid import Column, Table, grid
from suite.report.formatting.numbers import UNKNOWN, counted, interval, number, percent
from suite.report.text.columns import Shown, varying
from suite.report.text.section import Section, bullets, few


def _blocks(model: ReportModel) -> Iterator[str]:
    if not model.ranking.groups:
        yield _unranked(model)
        return
    yield "Rows of one size and rank count did equal work under equal conditions; nothing else is compared."
    if len({row.setting.asynchronous for row in model.rows if row.measured}) > 1:
        yield (
            "Asynchronous rows, which train on samples of older weights while others are generated, are in no ranking "
            "with synchronous ones."
        )
    has_headings = len({row.setting for row in model.rows}) > 1
    by_setting: dict[Setting, list[Group]] = defaultdict(list)
    for group in model.ranking.groups:
        by_setting[group.setting].append(group)
    for setting in sorted(by_setting):
        yield f"### {_heading(setting, model.algorithms)}" if has_headings else ""
        by_work: dict[WorkKind, list[Group]] = defaultdict(list)
        for group in by_setting[setting]:
            by_work[group.work].append(group)
        for work in sorted(by_work):
            yield f"{prose(work.text)}:" if model.several_kinds else ""
            yield grid(_table(by_work[work]))
            yield from _by_phase(by_work[work])


def _by_phase(groups: Sequence[Group]) -> Iterator[str]:
    """The same rows in each main phase alone, and where a difference comes mostly from one."""
    members = [(group, ranked) for group in groups for ranked in group.places if ranked.by_phase]
    if not members:
        return
    titles = [name for name in COMPARED if any(one.name == name for _, ranked in members for one in ranked.by_phase)]
    columns = (
        *(Column("size", False), Column("ranks")),
        *(Column(title, False) for title in ("rows", "backends")),
        *(Column(title) for title in ("whole [95 %]", *titles)),
    )
    rows = tuple(_phase_cells(group, ranked, titles) for group, ranked in members)
    unclear = any(one.verdict == "not distinguishable" for _, ranked in members for one in ranked.by_phase)
    yield "Ratio to the best of the group in the whole iteration and in its main phases alone:"
    yield grid(Table(columns, rows, ("Unclear: not distinguishable.",) if unclear else ()))
    slower = [(group, ranked, ranked.difference) for group, ranked in members if ranked.verdict == "slower"]
    yield bullets(few([_origin(group, ranked) for group, ranked, why in slower if why and why.is_mostly_one]))


def _phase_cells(group: Group, ranked: RankedRow, titles: Sequence[str]) -> tuple[str, ...]:
    best, row = group.places[0].row, ranked.row
    of_phase = {one.name: one for one in ranked.by_phase}
    return (
        *(inline(group.size), str(group.ranks), f"{row.name} / {best.name}"),
        f"{inline(row.backend)} / {inline(best.backend)}",
        interval(ranked.ratio, bound_digits=1),
        *(_phase_cell(of_phase[name]) if name in of_phase else UNKNOWN for name in titles),
    )


def _phase_cell(one: PhaseRatio) -> str:
    verdict = {"not distinguishable": "unclear", None: ""}.get(one.verdict, one.verdict)
    return f"{interval(one.ratio, bound_digits=1)} {verdict}".rstrip()


def _origin(group: Group, ranked: RankedRow) -> str:
    """One sentence; a share above 1 is what the row makes up for in other phases."""
    best, found = group.places[0].row, ranked.difference
    assert found is not None, "only differences are told"
    return (
        f"{ranked.row.name} takes {number(found.seconds)} s longer per iteration than {best.name}, "
        f"{percent(found.share)} % of that in {found.mostly}{'; elsewhere it is faster' if found.share > 1 else ''}."
    )


def _unranked(model: ReportModel) -> str:
    if not any(row.measured for row in model.rows):
        return "No run succeeded with an iteration that counts, so there is nothing to rank."
    if not any(row.measured and row.is_ranked for row in model.rows):
        return (
            "All runs are suspect, so nothing is ranked (Caveats says why; `--with-suspect` ranks them all the same)."
        )
    kind = " of one kind" if model.beside else ""
    return f"No two configurations{kind} did equal work under equal conditions, so nothing is ranked."


def _heading(setting: Setting, algorithms: Sequence[str]) -> str:
    whose = f"Engine backends (the suite's own {' or '.join(algorithms)} iteration)"
    if setting.kind == "trainer":
        how = ", asynchronous" if setting.asynchronous else ""
        if setting.clock != SUITE_CLOCK:
            how += f", timed by {inline(setting.clock)} and not by the suite"
        whose = f"Trainer backends (the stack's own trainer{how})"
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
        Column("ratio to best [95 %]"),
        Column("verdict", False),
        *(Column(title) for title in ("runs", "samples/s [95 %]")),
    )
    rows = tuple(_cells(group, ranked, extra) for group, ranked in members)
    notes = []
    turns = [ranked.turns for _, ranked in members if ranked.turns]
    if turns:
        notes.append(
            f"Ratios of rows that took turns by iteration are of {_span(turns)} turns, one start for each run."
        )
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
    if any(ranked.is_unsteady for _, ranked in members):
        notes.append(
            "Unsteady: iterations of some runs of this row kept getting slower or faster, or spread too far "
            "(Throughput says how many), so their rates depend on when they were measured, which no interval covers."
        )
    if any(ranked.row.two_modes for _, ranked in members):
        notes.append(
            "Two modes: some runs of this row are slower than its others by more than noise (Caveats says how many and "
            "by how much), so neither its rate nor its interval is that of a run that nothing slowed."
        )
    if any(group.seed is not None for group in groups):
        notes.append(
            "Seeds: rows that differ in their seed alone do not compete; those of each seed are ranked by themselves."
        )
    if any(_is_stale(ranked) for _, ranked in members):
        notes.append(
            "Stale samples: this row trains on samples of older weights (Generation says how many updates older), so "
            "it need not wait for them; what a policy learns from them is not measured."
        )
    if any(_does_otherwise(group, ranked) for group, ranked in members):
        notes.append(
            "Other work: this row's trainer counted the same as the best's, but tells other differences from the "
            "suite's own iteration, so the verdict includes them."
        )
    return Table(columns, rows, tuple(notes))


def _span(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return str(least) if least == most else f"{least} to {most}"


def _does_otherwise(group: Group, ranked: RankedRow) -> bool:
    """Beyond what is counted, as the trainers tell it."""
    return set(ranked.row.work_differences) != set(group.places[0].row.work_differences)


def _is_stale(ranked: RankedRow) -> bool:
    generation = ranked.row.generation
    return generation is not None and bool(generation.staleness)


def _cells(group: Group, ranked: RankedRow, extra: Sequence[Shown]) -> tuple[str, ...]:
    row, first = ranked.row, ranked is group.places[0]
    return (
        *((inline(group.size), str(group.ranks)) if first else ("", "")),
        *(row.name, inline(row.backend), row.layout),
        *(show(row) for _, show in extra),
        "1" if first else interval(ranked.ratio, bound_digits=1),
        ranked.verdict + _remarks(group, ranked),
        *(str(len(row.measured)), interval(row.samples_per_second)),
    )


def _remarks(group: Group, ranked: RankedRow) -> str:
    remarks = (["equal within 5 %"] if ranked.equivalent else []) + (["provisional"] if ranked.provisional else [])
    remarks += [] if ranked.in_turns else ["not in turns"]
    remarks += ["unsteady"] if ranked.is_unsteady else []
    remarks += ["two modes"] if ranked.row.two_modes else []
    remarks += ["stale samples"] if _is_stale(ranked) else []
    remarks += ["other work"] if _does_otherwise(group, ranked) else []
    remarks += ["suspect runs"] if ranked.row.holds_suspect else []
    return f" ({', '.join(remarks)})" if remarks else ""


SECTION = Section("Ranking", _blocks)
