"""Who is faster, among rows of equal work under equal conditions; and engines beside trainers that were asked for the
same work, without a verdict."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK
from suite.report.facts.model import ReportModel
from suite.report.facts.noise import COMPARED
from suite.report.facts.pool import Row
from suite.report.facts.ranking import Group, RankedRow, Side
from suite.report.formatting.escape import inline, prose
from suite.report.formatting.grid import Column, Notes, Table
from suite.report.formatting.numbers import UNKNOWN, counted, few, gib, interval, number
from suite.report.text.answer import REMARKS, nothing_ranked, where_of
from suite.report.text.section import Block, Heading, Shown, bullets, rate, table_of, varying

_TOO_FEW = (
    f"Too few runs: {RUNS_TO_PUBLISH} are needed to publish a figure and {RUNS_TO_RANK} to rank; the order shown is "
    "not a result."
)
_Member = tuple[Group, RankedRow]
_WHAT = (
    "These rows were asked for equal work under equal conditions. An engine runs the suite's own iteration, a trainer "
    "its stack's. Where that is other work, the ratio to the fastest engine includes the difference: this is no "
    "ranking; all that trainers do otherwise is listed under Work. GiB: the most of any rank with its trainer's "
    "processes and their libraries, resident on a CPU, in use on the whole device on a GPU."
)
_ASYNCHRONOUS = (
    "Asynchronous: the rate is of steady periods, in which samples are generated beside the training of older ones; "
    "what a policy learns from such samples is not measured"
)


def ranked(model: ReportModel) -> Iterator[Block]:
    if not model.ranking.groups:
        yield nothing_ranked(model)
        return
    yield (
        "Rows of one size and rank count did equal work under equal conditions; nothing else is compared. Ratios are "
        "of the whole iteration, then of its main phases alone."
    )
    groups = sorted(model.ranking.groups, key=lambda group: (group.best.setting, group.best.work))
    members = [(group, ranked) for group in groups for ranked in group.places]
    where = where_of(model)
    for words, alike in groupby(members, lambda member: where(member[0])):
        yield Heading(words) if words else ""
        yield _table(list(alike))
    yield bullets(_notes(members))
    if model.alone:
        names = ", ".join(few([row.name for row in model.alone]))
        yield f"Not compared, because no other row did equal work on as many ranks under equal conditions: {names}."


def _notes(members: Sequence[_Member]) -> Iterator[str]:
    if any(one.verdict == "not distinguishable" for _, ranked in members for one in ranked.by_phase):
        yield "Unclear: not distinguishable."
    if any(ranked.verdict == "too few runs" for _, ranked in members):
        yield _TOO_FEW
    for word, text, is_so in REMARKS:
        if text and any(is_so(*member) for member in members):
            yield f"{word.capitalize()}: {text}."


def _table(members: Sequence[_Member]) -> Table:
    """Groups of one setting, one after the other; only the first row of each has size and ranks."""
    phases = [name for name in COMPARED if any(one.name == name for _, ranked in members for one in ranked.by_phase)]
    has_layouts = any(len({one.row.backend for one in group.places}) < len(group.places) for group, _ in members)
    named: list[Shown] = [
        (Column("row", False), lambda row: row.name),
        (Column("backend", False), lambda row: inline(row.backend)),
        *([(Column("layout", False), lambda row: row.layout)] if has_layouts else ()),
        *varying([ranked.row for _, ranked in members]),
    ]
    columns: list[tuple[Column, Callable[[_Member], str]]] = [
        (Column("size", False), lambda it: inline(it[0].best.size) if _is_first(it) else ""),
        (Column("ranks"), lambda it: str(it[0].best.ranks) if _is_first(it) else ""),
        *((column, _of_row(show)) for column, show in named),
        (Column("ratio to best [95 %]"), lambda it: "1" if _is_first(it) else interval(it[1].ratio, bound_digits=1)),
        (Column("verdict", False), _verdict),
        (Column("runs"), lambda it: str(len(it[1].row.measured))),
        *((Column(name), _ratio_in(name)) for name in phases),
    ]
    return table_of(columns, members)


def _is_first(member: _Member) -> bool:
    return member[1] is member[0].places[0]


def _of_row(show: Callable[[Row], str]) -> Callable[[_Member], str]:
    return lambda member: show(member[1].row)


def _verdict(member: _Member) -> str:
    words = [word for word, _, is_so in REMARKS if is_so(*member)]
    return member[1].verdict + (f" ({', '.join(words)})" if words else "")


def _ratio_in(phase: str) -> Callable[[_Member], str]:
    def show(member: _Member) -> str:
        found = [one for one in member[1].by_phase if one.name == phase]
        if not found:
            return "1" if _is_first(member) else UNKNOWN
        verdict = {"not distinguishable": "unclear", None: ""}.get(found[0].verdict, found[0].verdict)
        return f"{number(found[0].ratio.value)} {verdict}".rstrip()

    return show


def side_by_side(model: ReportModel) -> Iterator[Block]:
    if not model.beside:
        return
    yield Heading("Trainers and engines side by side")
    yield _WHAT
    for group in model.beside:
        first = group[0].row
        setting, work = first.setting, f"{prose(first.work.text)}, {inline(first.manifest.workload.name)}"
        yield (
            f"{inline(first.size)} on {counted(first.ranks, 'rank')}, {work}, {setting.track}, {setting.precision} on "
            f"{setting.device}, machine {setting.machine}:"
        )
        yield _rates(group)


def _rates(group: Sequence[Side]) -> Table:
    notes, first = Notes(), group[0].row
    memory = "device GiB" if first.setting.device == "cuda" else "resident GiB"
    titles = ("row", "backend", "kind", "layout", "runs", "samples/s [95 %]", "to fastest engine", memory)
    known = set().union(*(side.row.phase_names for side in group))
    rows = []
    for side in group:
        row = side.row
        marks = [
            f"Other work than {first.name}: {'; '.join(side.otherwise)}" if side.otherwise else "",
            *(
                f"No {name}: {prose(reason)}"
                for name, reason in row.lacking_phases.items()
                if name in known - row.phase_names
            ),
            _ASYNCHRONOUS * row.setting.asynchronous,
            "Suspect runs are in its figures" * row.holds_suspect,
        ]
        backend = " ".join([inline(row.backend), *map(notes.mark, filter(None, marks))])
        words = (row.name, backend, row.setting.kind, row.layout, str(len(row.measured)))
        ratio = "1" if row is first and row.setting.kind == "engine" else interval(side.ratio, bound_digits=1)
        cells = (rate(row), ratio, gib(row.occupied_bytes))
        rows.append((*words, *cells))
    columns = tuple(Column(title, place > 3) for place, title in enumerate(titles))
    return Table(columns, tuple(rows), tuple(notes))
