"""What every view opens with: who is faster, then scaling, memory and cost, then how far to trust it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK
from suite.report.facts.model import ReportModel
from suite.report.facts.noise import Difference
from suite.report.facts.pool import Row
from suite.report.facts.ranking import Group, RankedRow
from suite.report.formatting.escape import inline, plain
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, counted, few, interval, listed, moment, number, percent
from suite.report.text.section import SETTING, Block, Pointer, bullets, label

#: Comparisons that are shown here; Ranking has all of them.
MOST_SHOWN = 16
_MOST_NAMES = 6
_PER_SAMPLES = 1000
#: Bounds further apart than this factor say nothing.
_WIDEST = 10
_Of = TypeVar("_Of")
#: What is remarked beside a verdict, what that means, and of which rows it is true.
REMARKS: tuple[tuple[str, str, Callable[[Group, RankedRow], bool]], ...] = (
    ("equal within 5 %", "", lambda _, ranked: bool(ranked.equivalent)),
    (
        "provisional",
        f"{RUNS_TO_PUBLISH} runs are enough to publish, but it takes {RUNS_TO_RANK} to rank",
        lambda _, ranked: ranked.provisional,
    ),
    (
        "not in turns",
        "all runs of this row came before or after those of the best, so their ratio includes whatever changed on the "
        "machine in between",
        lambda _, ranked: not ranked.in_turns,
    ),
    (
        "unsteady",
        "iterations of some runs kept getting slower or faster, or spread too far, so their rates depend on when they "
        "were measured, which no interval covers",
        lambda _, ranked: ranked.is_unsteady,
    ),
    (
        "two modes",
        "some runs are slower than the others by more than noise (see Caveats), so the rate is not that of a run that "
        "nothing slowed",
        lambda _, ranked: ranked.row.two_modes is not None,
    ),
    (
        "stale samples",
        "this row trains on samples of older weights, so it need not wait for them; what a policy learns from them is "
        "not measured",
        lambda _, ranked: bool(ranked.row.rollout.staleness),
    ),
    (
        "other work",
        "this row's trainer counted the same as the best's, but tells of other differences, which the verdict includes",
        lambda group, ranked: {*ranked.row.work_differences} != {*group.places[0].row.work_differences},
    ),
    ("suspect", "", lambda _, ranked: ranked.row.holds_suspect),
)
#: Those that the answer has too, where they are true of any row of a group.
_SHAKY = ("suspect", "unsteady", "two modes", "not in turns")


@dataclass(frozen=True)
class Verdict:
    """Of a group. ``where``: setting and work, as far as they differ. ``phase``: which has most of the extra time, and
    how much of it; above 100 % others make up for some."""

    where: str
    size: str
    ranks: str
    faster: str
    by: str
    confidence: str
    runs: int
    remarks: tuple[str, ...]
    phase: str
    rows: str

    @property
    def sure(self) -> str:
        return ", ".join([self.confidence, counted(self.runs, "run"), *self.remarks])

    def cells(self) -> dict[str, str]:
        return {
            "size": self.size,
            "ranks": self.ranks,
            "work": self.where,
            "who is faster": self.faster,
            "by [95 %]": self.by,
            "how sure": self.sure,
            "mostly in": self.phase,
            "rows": self.rows,
        }


def answer(model: ReportModel) -> tuple[Block, ...]:
    verdicts = verdicts_of(model)
    cells = [one.cells() for one in verdicts[:MOST_SHOWN]]
    titles = [title for title in (cells[0] if cells else ()) if title != "work" or any(one[title] for one in cells)]
    columns = tuple(Column(title, title in ("ranks", "by [95 %]")) for title in titles)
    table = Table(columns, tuple(tuple(one[title] for title in titles) for one in cells))
    more = [f"And {len(verdicts) - MOST_SHOWN} more under Ranking."] if len(verdicts) > MOST_SHOWN else []
    return (scope(model), table if cells else nothing_ranked(model), *more, bullets(figures(model)), trust(model))


def as_lines(model: ReportModel) -> tuple[str, ...]:
    verdicts = [
        f"{' '.join(filter(None, (one.size, f'on {one.ranks}', one.where)))}: {one.faster}, {one.by}, {one.sure}"
        for one in verdicts_of(model)
    ]
    return tuple(map(plain, (scope(model), *(verdicts or [nothing_ranked(model)]), *figures(model), trust(model).text)))


def scope(model: ReportModel) -> str:
    if not model.rows:
        return "No run was found, so nothing was measured."
    rows = model.rows
    found = (sorted({row.backend for row in rows}), [row.size for row in rows], sorted({row.ranks for row in rows}))
    texts = (list(dict.fromkeys(inline(str(one)) for one in known)) for known in found)
    backends, sizes, ranks = (listed(few(known, _MOST_NAMES, "{} more")) for known in texts)
    machines = list(dict.fromkeys(inline(one.name) for one in model.machines))
    where = listed(few(machines, 2, "{} more kinds of machine"))
    when = "" if model.started is None else f", {moment(model.started)} to {moment(model.ended)}"
    return (
        f"{listed(model.algorithms)} with {backends} at {sizes} on {ranks} {'rank' if ranks == '1' else 'ranks'}. "
        f"{model.runs_ok:,} of {counted(model.runs, 'run')} succeeded, in {counted(len(model.rows), 'row')}{when}"
        f"{f'; {where}' if where else ''}."
    )


def verdicts_of(model: ReportModel) -> list[Verdict]:
    """Of each group of the ranking; of tuned rows, which differ by a knob, a study's own section speaks."""
    groups = sorted(_of_the_answer(model), key=lambda group: min(one.row.number for one in group.places))
    where = where_of(model)
    return [_verdict(group, where(group)) for group in groups]


def where_of(model: ReportModel) -> Callable[[Group], str]:
    """What tells of a group its work and setting, as far as those of the report's rows differ."""
    measured = [row for row in model.rows if row.measured]
    differing = [(column.title, show) for column, show in SETTING if len(set(map(show, measured))) > 1]

    def where(group: Group) -> str:
        work = (
            [f"{inline(group.best.work.algorithm)} on {inline(group.best.work.family)}"] if model.several_kinds else []
        )
        return ", ".join([*work, *(f"{title} {show(group.best)}" for title, show in differing)])

    return where


def _of_the_answer(model: ReportModel) -> list[Group]:
    groups = model.ranking.groups
    return [group for group in groups if group.best.setting.track != "tuned"] or list(groups)


def _verdict(group: Group, where: str) -> Verdict:
    best, second = group.places[:2]
    lead, difference = group.lead, second.difference
    says_nothing = lead.low is not None and lead.high is not None and lead.high > _WIDEST * lead.low
    confidence: str = "equal within 5 %" if group.is_equal else best.verdict
    if best.verdict == "faster":
        confidence = "provisional" if best.provisional else "clear"
    return Verdict(
        where=where,
        size=inline(group.best.size),
        ranks=str(group.best.ranks),
        faster=_faster(group),
        by=UNKNOWN if says_nothing else interval(lead, bound_digits=1),
        confidence=confidence,
        runs=min(len(one.row.measured) for one in group.places),
        remarks=tuple(
            word for word, _, is_so in REMARKS if word in _SHAKY and any(is_so(group, one) for one in group.places)
        ),
        phase=_mostly(difference) if best.verdict == "faster" and difference else UNKNOWN,
        rows=", ".join(f"R{number}" for number in sorted(one.row.number for one in group.places)),
    )


def _mostly(difference: Difference) -> str:
    """The phase, and its share; the other phases may be faster than the best's, so that it is all and more."""
    return f"{difference.mostly} ({'all' if difference.share >= 1 else f'{percent(difference.share)} %'})"


def _faster(group: Group) -> str:
    """``a over b``; ``a or b`` and ``a or b, over c``, where the first cannot be told apart."""
    names = _apart([one.row for one in group.places])
    first = sum(one.verdict != "slower" for one in group.places)
    # of more than three the first two
    known = [few(part, 2 if len(part) > 3 else 3, "{} more") for part in (names[:first], names[first:])]
    ahead, after = " or ".join(known[0]), listed(known[1])
    return f"{ahead}{',' * (first > 1)} over {after}" if after else ahead


def _apart(rows: Sequence[Row]) -> list[str]:
    """What tells rows of one group apart: their backends, else with layouts, then variants, then names."""
    names = [inline(row.backend) for row in rows]
    for more in (
        [row.layout for row in rows],
        [inline(row.variant) if row.variant else "" for row in rows],
        [f"({row.name})" for row in rows],
    ):
        longer = [f"{inline(row.backend)} {text}".rstrip() for row, text in zip(rows, more, strict=True)]
        names = [more if names.count(name) > 1 else name for name, more in zip(names, longer, strict=True)]
    return names


def nothing_ranked(model: ReportModel) -> str:
    measured = [row for row in model.rows if row.measured]
    if not measured:
        return "No run succeeded with an iteration that counts, so there is nothing to rank."
    if not any(row.is_ranked for row in measured):
        return "All runs are suspect, so nothing is ranked; `--with-suspect` ranks them all the same."
    return "No two rows of one kind did equal work under equal conditions, so nothing is ranked."


def figures(model: ReportModel) -> list[str]:
    """Scaling, memory and cost, a line each: the least and the most, with the rows that have them."""
    floors = [(1 / row.memory.efficiency, row) for row in model.rows if row.memory and row.memory.efficiency]
    seconds = [
        (_PER_SAMPLES * row.ranks / row.samples_per_second.value, row) for row in model.rows if row.samples_per_second
    ]
    joules = [
        (row.energy.joules_per_sample, row)
        for row in model.rows
        if row.energy and row.energy.valid and row.energy.joules_per_sample is not None
    ]
    costs = ((seconds, f"rank seconds for {_PER_SAMPLES:,} samples"), (joules, "J a sample"))
    texts = {
        "Scaling": _scaling(model),
        "Memory": f"peak {_range(floors)} times the theoretical floor" if floors else "",
        "Cost": "; ".join(f"{_range(found)} {what}" for found, what in costs if found),
    }
    return [f"{name}: {text}." for name, text in texts.items() if text]


def _scaling(model: ReportModel) -> str:
    phrases = []
    for kind in ("weak", "strong"):
        members = [(curve.largest.eta.value, curve) for curve in model.scaling if curve.kind == kind]
        ends = [(curve.base.ranks, curve.largest) for _, curve in _ends(members)]
        texts = [
            f"eta({last.row.ranks}; {base}) {interval(last.eta, bound_digits=1)} ({label(last.row)})"
            for base, last in ends
        ]
        phrases += [f"{kind}, {' to '.join(texts)}"] if texts else []
    return "; ".join(phrases)


def _range(found: Sequence[tuple[float, Row]]) -> str:
    return " to ".join(f"{number(value)} ({label(row)})" for value, row in _ends(found))


def _ends(found: Sequence[tuple[float, _Of]]) -> list[tuple[float, _Of]]:
    ordered = sorted(found, key=lambda one: one[0])
    return ordered if len(ordered) < 2 else [ordered[0], ordered[-1]]


def trust(model: ReportModel) -> Pointer:
    """One line of counts."""
    rows, groups = model.rows, _of_the_answer(model)
    suspect = sum(row.runs_suspect + row.runs_invalid for row in rows)
    taken = sum(row.runs_suspect for row in rows if row.holds_suspect and row.is_ranked)
    unranked = sum(bool(row.measured) and not row.is_ranked for row in rows)
    unsteady = sum(row.unsteady_runs > 0 and not row.phase_seconds for row in rows)
    provisional = sum(group.places[0].provisional for group in groups)
    too_few = sum(group.places[0].verdict == "too few runs" for group in groups)
    pieces = (
        f"{suspect:,} of {counted(model.runs, 'run')} suspect{f', {suspect - taken:,} left out' if suspect else ''}",
        f"{counted(unranked, 'row')} of suspect runs alone not ranked" if unranked else "",
        f"{unsteady} of {counted(len(rows), 'row')} unsteady",
        f"{provisional} of {counted(len(groups), 'verdict')} provisional" if groups else "",
        f"{too_few} of too few runs" if too_few else "",
        f"{counted(len(model.alone), 'row')} without another to compare" if model.alone else "",
        f"{model.runs - model.runs_ok:,} failed",
    )
    further = {"Throughput": rows, "Ranking": rows, "Failures": model.failures, "Caveats": model.caveats}
    headings = tuple(heading for heading, has_more in further.items() if has_more)
    return Pointer(f"How far to trust this: {', '.join(filter(None, pieces))}.", headings)
