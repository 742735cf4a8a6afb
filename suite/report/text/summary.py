"""Three sentences: what was measured, which is faster, and how scaling, memory and failures look."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK, Setting
from suite.report.facts.model import ReportModel
from suite.report.facts.ranking import Group, RankedRow
from suite.report.facts.scaling import Curve
from suite.report.formatting import numbers
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, listed, number
from suite.stats.intervals import Interval

#: How a name that a user chose is written: as it is, or escaped for Markdown.
Show = Callable[[str], str]
#: Groups that get a clause each; more are counted.
_MOST_GROUPS = 16
_MOST_NAMES = 8
_NOTHING_EQUAL = "No two configurations did equal work under equal conditions, so nothing is ranked"
_SETTING_WORDS = {
    "kind": "{} backends",
    "track": "{}",
    "device": "{}",
    "precision": "{}",
    "threads_per_rank": "{} threads per rank",
    "machine": "machine {}",
    "order": "{}",
}


def sentences(model: ReportModel, show: Show = visible) -> tuple[str, str, str]:
    """The three sentences, each true of any data: none, one backend, one run, all failed."""
    return _measured(model, show), _faster(model, show), _rest(model, show)


def _measured(model: ReportModel, show: Show) -> str:
    if not model.rows:
        return "No run was found, so nothing was measured."
    kinds = {row.setting.kind for row in model.rows}
    backends = sorted({(row.backend, row.setting.kind) for row in model.rows})
    named = [show(backend) + (f" ({kind})" if len(kinds) > 1 else "") for backend, kind in backends]
    sizes = list(dict.fromkeys(row.size for row in model.rows))
    ranks = sorted({row.ranks for row in model.rows})
    ended = (
        f"{model.runs_ok:,} of {counted(model.runs, 'run')} succeeded, in {counted(len(model.rows), 'configuration')}"
    )
    where = f"{_names(sizes, 'size', show)}{_families(model)} on {_ranks(ranks)} of {_devices(model, show)}"
    return (
        f"{listed(model.algorithms)} iterations of {_workloads(model, show)} were timed with "
        f"{listed(named[:_MOST_NAMES])} at {where}: {ended}."
    )


def _workloads(model: ReportModel, show: Show) -> str:
    names = [fact.name for fact in model.work]
    return f"workload {show(names[0])}" if len(set(names)) == 1 else f"workloads {_names(names, 'workload', show)}"


def _families(model: ReportModel) -> str:
    """Of the models, unless all are what all once were."""
    names = [one.family for one in model.models]
    return "" if set(names) <= {"GPT-2"} else f" ({listed(names)})"


def _names(names: Sequence[str], noun: str, show: Show) -> str:
    distinct = list(dict.fromkeys(names))
    if len(distinct) <= _MOST_NAMES:
        return listed([show(name) for name in distinct])
    return f"{len(distinct)} {noun}s from {show(distinct[0])} to {show(distinct[-1])}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = [str(count) for count in ranks]
    few = listed(shown) if len(shown) <= _MOST_NAMES else f"{shown[0]} to {shown[-1]}"
    return f"{few} {'rank' if list(ranks) == [1] else 'ranks'}"


def _devices(model: ReportModel, show: Show) -> str:
    names = [f"the CPU {show(one.name)}" if one.is_cpu else show(one.name) for one in model.machines]
    distinct = list(dict.fromkeys(names))
    return listed(distinct) if len(distinct) <= 3 else f"{len(distinct)} kinds of machine"


def _faster(model: ReportModel, show: Show) -> str:
    groups = model.ranking.groups
    if not any(row.measured for row in model.rows):
        return "No run succeeded with an iteration that counts, so there is no rate to compare."
    if not groups:
        return _unranked(model, show)
    kinds = {row.setting.kind for row in model.rows if row.measured}
    several_works = model.several_kinds
    few = len(groups) <= _MOST_GROUPS
    text = _clauses(groups, len(kinds) > 1, several_works, show) if few else _tally(groups, show)
    alone = len(model.alone)
    other_kind = len(model.ranking.apart) - alone
    clauses = (
        text,
        f"not ranked with {counted(other_kind, 'configuration')} of another kind" if other_kind else "",
        f"{counted(alone, 'more configuration')} could not be ranked, with no other of equal work and conditions"
        if alone
        else "",
        _suspect(model),
        _unsteady(groups),
        _few_runs(groups),
    )
    return f"{_capital('; '.join(filter(None, clauses)))}."


def _few_runs(groups: Sequence[Group]) -> str:
    """Rows in turns by iteration are in an order as sure as its interval; others need runs for it."""
    weakest = min(len(ranked.row.measured) for ranked in _places(groups))
    if weakest < RUNS_TO_PUBLISH:
        return (
            f"{RUNS_TO_PUBLISH} runs of each are needed to publish and {RUNS_TO_RANK} to rank, and some have {weakest}"
        )
    if any(ranked.provisional for ranked in _places(groups)):
        return f"the order is provisional, because ranking takes {RUNS_TO_RANK} runs of each and some have {weakest}"
    return ""


def _suspect(model: ReportModel) -> str:
    rows = sum(bool(row.measured) and not row.is_ranked for row in model.rows)
    return (
        f"{counted(rows, 'configuration')} of suspect runs alone {'is' if rows == 1 else 'are'} not ranked"
        if rows
        else ""
    )


def _unsteady(groups: Sequence[Group]) -> str:
    places = _places(groups)
    unsteady = sum(ranked.is_unsteady for ranked in places)
    return f"not all runs of {unsteady} of the {len(places)} ranked configurations were steady" if unsteady else ""


def _places(groups: Sequence[Group]) -> list[RankedRow]:
    return [ranked for group in groups for ranked in group.places]


def _unranked(model: ReportModel, show: Show) -> str:
    measured = [(row.samples_per_second, row) for row in model.rows if row.samples_per_second is not None]
    measured.sort(key=lambda rated: rated[0].value)
    rates = [f"{_figure(rate)} samples/s at {show(row.size)} on {_ranks([row.ranks])}" for rate, row in measured]
    span = rates[0] if len(rates) == 1 else f"from {rates[0]} to {rates[-1]}"
    few = min(len(row.measured) for _, row in measured)
    tail = (
        f", from fewer than the {RUNS_TO_PUBLISH} runs that a published figure needs" if few < RUNS_TO_PUBLISH else ""
    )
    why = "Rows of several kinds are shown side by side, but nothing is ranked" if model.beside else _NOTHING_EQUAL
    if not any(row.is_ranked for _, row in measured):
        why = "All runs are suspect, so nothing is ranked"
    return f"{why}; the rate is {span}{tail}."


def _clauses(groups: Sequence[Group], both_kinds: bool, several_works: bool, show: Show) -> str:
    """One clause per number of ranks (and setting and kind of work, where there are several; ``both_kinds`` of backend
    and ``several_works``: in the whole report)."""
    differing = _differing(group.setting for group in groups)
    if both_kinds and "kind" not in differing:
        differing.insert(0, "kind")
    by_where: dict[tuple, list[Group]] = defaultdict(list)
    for group in groups:
        by_where[group.setting, group.work, group.ranks].append(group)
    clauses = []
    for (setting, work, ranks), members in sorted(by_where.items()):
        where = f"on {_ranks([ranks])}"
        if several_works:
            where = f"of {work.algorithm} on {work.family} {where}"
        if differing:
            where += f" ({', '.join(_SETTING_WORDS[name].format(getattr(setting, name)) for name in differing)})"
        clauses.append(f"{where} {listed(_outcomes(members, show))}")
    return "; ".join(clauses)


def _differing(settings: Iterable[Setting]) -> list[str]:
    """The fields in which the settings are not all alike."""
    found = set(settings)
    return [name for name in _SETTING_WORDS if len({getattr(setting, name) for setting in found}) > 1]


def _outcomes(groups: Sequence[Group], show: Show) -> list[str]:
    by_outcome: dict[tuple[str, str], list[Group]] = defaultdict(list)
    for group in groups:
        winner = "" if group.verdict == "not distinguishable" else _winner(group, show)
        by_outcome[group.verdict, winner].append(group)
    phrases = []
    for (verdict, winner), members in by_outcome.items():
        sizes = listed([show(group.size) + _among(group, groups) for group in members])
        if verdict == "faster":
            phrases.append(f"{winner} is faster at {sizes} ({_leads(members)} times the next{_origin(members)})")
        elif verdict == "too few runs":
            phrases.append(f"{winner} has the higher rate at {sizes} ({_leads(members)} times the next)")
        else:
            phrases.append(f"the rates are not distinguishable at {sizes}")
    return phrases


def _among(group: Group, groups: Sequence[Group]) -> str:
    """Which rows, where others of this size are ranked apart because they did other work."""
    if sum(other.size == group.size for other in groups) < 2:
        return ""
    return f" among {listed([ranked.row.name for ranked in group.places])}"


def _winner(group: Group, show: Show) -> str:
    """The backend, with its layout where the group has the same backend twice."""
    best = group.places[0].row
    twice = sum(ranked.row.backend == best.backend for ranked in group.places) > 1
    return f"{show(best.backend)} ({show(best.layout)})" if twice else show(best.backend)


def _origin(groups: Sequence[Group]) -> str:
    """The phases that make up most of the lead, where they do so in all groups."""
    found = [group.places[1].difference for group in groups]
    names = {one.mostly if one and one.is_mostly_one else None for one in found}
    name = names.pop() if len(names) == 1 else None
    return f", mostly in {name}" if name else ""


def _leads(groups: Sequence[Group]) -> str:
    ordered = sorted((group.lead for group in groups), key=lambda lead: lead.value)
    least, most = _figure(ordered[0]), _figure(ordered[-1])
    return least if least == most else f"{least} to {most}"


def _tally(groups: Sequence[Group], show: Show) -> str:
    winners: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        if group.verdict == "faster":
            winners[show(group.places[0].row.backend)].append(group)
    most_first = sorted(winners.items(), key=lambda item: (-len(item[1]), item[0]))
    won = [f"{backend} is faster in {len(won)} ({_leads(won)} times the next)" for backend, won in most_first]
    verdicts = Counter(group.verdict for group in groups)
    if verdicts["not distinguishable"]:
        won.append(f"{verdicts['not distinguishable']} are not distinguishable")
    if verdicts["too few runs"]:
        won.append(f"{verdicts['too few runs']} have too few runs")
    return f"of {len(groups)} comparisons of equal work {listed(won)}"


def _rest(model: ReportModel, show: Show) -> str:
    if not model.rows:
        return "Nothing is known of scaling, memory or failures."
    clauses = [_scaling(model.scaling.curves, show), _memory(model), _failures(model)]
    return f"{_capital('; '.join(clauses))}."


def _scaling(curves: Sequence[Curve], show: Show) -> str:
    if not curves:
        return "scaling is unknown, because nothing was measured on two rank counts under one strategy"
    phrases = []
    for kind in ("weak", "strong"):
        members = sorted((curve for curve in curves if curve.kind == kind), key=lambda curve: curve.largest.eta.value)
        if members:
            phrases.append(f"{kind} scaling has {_etas(members, show)}")
    return listed(phrases)


def _etas(curves: Sequence[Curve], show: Show) -> str:
    """The least and the greatest eta, each at the most ranks of its curve."""
    spans = [f"eta({curve.largest.row.ranks}; {curve.base.ranks})" for curve in curves]
    ends = [f"{_figure(curve.largest.eta)} ({show(curve.base.backend)} {show(curve.base.size)})" for curve in curves]
    if len(curves) == 1:
        return f"{spans[0]} = {ends[0]}"
    if len(set(spans)) == 1:
        return f"{spans[0]} between {ends[0]} and {ends[-1]}"
    return f"{spans[0]} = {ends[0]} to {spans[-1]} = {ends[-1]}"


def _memory(model: ReportModel) -> str:
    times = sorted(1 / row.memory.efficiency for row in model.rows if row.memory and row.memory.efficiency)
    if not times:
        return "memory against the floor is unknown"
    low, high = number(times[0]), number(times[-1])
    return f"peak memory is {low if low == high else f'{low} to {high}'} times the theoretical floor"


def _failures(model: ReportModel) -> str:
    kinds: Counter = Counter()
    for failure in model.failures:
        kinds[failure.kind] += len(failure.run_ids)
    total = model.runs - model.runs_ok
    if not total:
        return "no run failed"
    by_kind = listed([f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))])
    return f"{counted(total, 'run')} did not succeed ({by_kind})"


def _figure(estimate: Interval | None) -> str:
    return numbers.interval(estimate, bound_digits=1)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
