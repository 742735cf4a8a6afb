"""Engines and trainers that were asked for the same work: rates, phases, memory and what each does otherwise, without a
verdict."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.side_by_side import Side, SideBySide
from suite.report.facts.work import COUNTED, WorkDifference
from suite.report.formatting.escape import inline, prose
from suite.report.formatting.grid import Column, Notes, Table
from suite.report.formatting.numbers import UNKNOWN, counted, gib, interval, listed, number
from suite.report.text.columns import rate
from suite.report.text.section import Block, Heading, Section, bullets, few

#: What a cell shows of a phase that is not there.
_NONE = "\N{EN DASH}"
_RATIO = Column("to fastest engine")
_RATES = (
    *(Column(title, False) for title in ("row", "backend", "kind", "layout")),
    Column("runs"),
    *(Column("samples/s [95 %]"), _RATIO),
)
_WHAT = (
    "These rows were asked for equal work under equal conditions. An engine runs the suite's own iteration, a trainer "
    "its stack's. Where that is other work, the ratio to the fastest engine includes the difference: this is no "
    "ranking. GiB: the most of any rank with its trainer's processes and their libraries, resident on a CPU, in use on "
    "the whole device on a GPU."
)
_ASYNCHRONOUS = (
    "Asynchronous: the rate is of steady periods, in which samples are generated beside the training of older ones; "
    "what a policy learns from such samples is not measured"
)
_BESIDE = (
    "Seconds of the side that trains, of which generate is waiting for samples: others generate meanwhile, so they do "
    "not add up to what was done"
)


def _blocks(model: ReportModel) -> Iterator[Block]:
    if not model.beside:
        return
    yield Heading("Trainers and engines side by side")
    yield _WHAT
    for group in model.beside:
        yield f"{_title(group)}:"
        yield _rates(group)
        yield "Seconds per iteration in each phase:"
        yield _phases(group)
        yield _counts(group)
    yield from _differences(model)


def _title(group: SideBySide) -> str:
    setting = group.sides[0].row.setting
    return (
        f"{inline(group.size)} on {counted(group.ranks, 'rank')}, {prose(group.work.text)}, {inline(group.workload)}, "
        f"{setting.track}, {setting.precision} on {setting.device}, machine {setting.machine}"
    )


def _rates(group: SideBySide) -> Table:
    notes = Notes()
    first = group.sides[0].row
    has_engine = first.setting.kind == "engine"
    columns = [column for column in _RATES if has_engine or column is not _RATIO]
    columns.append(Column("device GiB" if first.setting.device == "cuda" else "resident GiB"))
    cells = tuple(tuple(_rate_cells(side, first, has_engine, notes)) for side in group.sides)
    return Table(tuple(columns), cells, notes.lines())


def _rate_cells(side: Side, first: Row, has_engine: bool, notes: Notes) -> Iterator[str]:
    row = side.row
    yield row.name
    otherwise = "; ".join(side.otherwise)
    mark = f" {notes.mark(f'Other work than {first.name}: {otherwise}')}" if otherwise else ""
    yield f"{inline(row.backend)}{mark}"
    yield row.setting.kind + (f" {notes.mark(_ASYNCHRONOUS)}" if row.setting.asynchronous else "")
    yield row.layout
    yield str(len(row.measured)) + (f" {notes.mark('Suspect runs are in its figures')}" if row.holds_suspect else "")
    yield rate(row)
    if has_engine:
        yield "1" if row is first else interval(side.ratio, bound_digits=1)
    yield gib(row.occupied_bytes)


def _phases(group: SideBySide) -> Table:
    notes = Notes()
    columns = (Column("row", False), Column("backend", False), *map(Column, group.phases), Column("iteration"))
    rows = tuple(_phase_cells(group, side, notes) for side in group.sides)
    return Table(columns, rows, notes.lines())


def _phase_cells(group: SideBySide, side: Side, notes: Notes) -> tuple[str, ...]:
    row = side.row
    found, lacking = {phase.name: phase for phase in row.phases}, dict(side.lacking)
    cells = []
    for name in group.phases:
        if name in found:
            cells.append(number(found[name].seconds))
        else:
            cells.append(f"{_NONE} {notes.mark(f'No {name}: {prose(lacking[name])}')}")
    mark = f" {notes.mark(_BESIDE)}" if row.setting.asynchronous else ""
    return (row.name, f"{inline(row.backend)}{mark}", *cells, number(row.iteration_seconds))


def _counts(group: SideBySide) -> str:
    """What the first row counted, and who counted the same."""
    row = group.sides[0].row
    counts = {field.replace("_", " "): getattr(row.counts, field) for field in ("samples", *COUNTED)}
    known = [f"{name} {UNKNOWN if count is None else f'{count:,}'}" for name, count in counts.items()]
    others = "the others too, but for what is noted at their names"
    if not any(side.otherwise for side in group.sides):
        others = "all others too"
    return f"{row.name} counted in an iteration: {', '.join(known)}; {others}."


def _differences(model: ReportModel) -> Iterator[Block]:
    shown = [side.row for group in model.beside for side in group.sides if side.row.setting.kind == "trainer"]
    by_backend: dict[str, list[WorkDifference]] = defaultdict(list)
    for one in model.differences_of({row.number for row in shown}):
        by_backend[one.backend].append(one)
    if by_backend:
        yield "What these trainers do otherwise than the suite's own iteration of the same work:"
        for name, known in by_backend.items():
            yield from _listing(name, known, shown)
    silent = sorted({row.backend for row in shown} - by_backend.keys())
    if silent:
        yield f"No such differences are told by {listed([inline(name) for name in silent])}."


def _listing(backend: str, known: Sequence[WorkDifference], shown: Sequence[Row]) -> Iterator[Block]:
    """Sentences of one backend, each with its rows unless it is of all of them."""
    names = [row.name for row in sorted(shown, key=lambda row: row.number) if row.backend == backend]
    lines = []
    for one in known:
        of = "" if set(one.rows) == set(names) else f" ({', '.join(one.rows)})"
        lines.append(f"{prose(one.text)}{of}")
    yield f"{inline(backend)} ({', '.join(names)}):"
    yield bullets(few(lines))


SECTION = Section(None, _blocks)
