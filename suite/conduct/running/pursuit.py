"""Adding runs to the rows of a plan, round by round, until its stopping rule asks for no more; and what it came to."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

from suite.bundle.derive import StillRunning, record_of
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.conduct.planning.plan import Plan
from suite.conduct.planning.turns import Seat, Seats
from suite.conduct.running.display import View, row_name
from suite.conduct.running.session import Ledger, Summary
from suite.conduct.running.state import by_repeat, row_of
from suite.report.facts.pool import counted_seconds, measured_run, runs_in_turns, setting_of
from suite.report.facts.rollout import lengths_hash_of
from suite.report.facts.suspect import is_invalid, is_suspect
from suite.report.formatting.numbers import counted, interval, percent, span
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest, Stopping
from suite.spec.resolve import as_repeat
from suite.stats.intervals import Interval
from suite.stats.precision import Outlook, Sampled, judge
from suite.stats.split import Cost, best_iterations
from suite.stats.steady_state import FEWEST_ITERATIONS

#: A row whose runs fail, or are suspect, so often in a row is given up.
FAILED_IN_A_ROW, SUSPECT_IN_A_ROW = 2, 4
#: Chosen iterations are at most so many times those that were asked for, and leave this share of the limit unused.
_MOST_TIMES, _LIMIT_SHARE = 4, 0.5


@dataclass
class PursuedRow:
    """A row of the plan: its repeats so far, what came of them, and where it stands.

    ``unit``: equal of rows that get runs together or not at all, ``partners`` of those that are started together;
    ``runs``: in each round. ``gave_up``: why it gets no more runs though it needs them. ``costs``: of its runs that
    count. ``seconds``: of all its runs so far, of starts in turns its share.
    """

    first: Manifest
    unit: Hashable
    repeats: list[Manifest]
    sampled: Sampled
    partners: Hashable
    runs: int
    outlook: Outlook = field(default_factory=lambda: Outlook("more", None, None))
    gave_up: str | None = None
    costs: tuple[Cost, ...] = ()
    seconds: float = 0.0
    told: set[str] = field(default_factory=set)

    @property
    def state(self) -> str:
        return "given up" if self.gave_up else self.outlook.state

    @property
    def run_seconds(self) -> float:
        """What its next run should last; 0 where nothing tells it."""
        return mean_cost(self.costs).run_seconds(self.sampled.iterations) if self.costs else 0.0

    @property
    def seconds_more(self) -> float | None:
        """What the runs that it will take should last."""
        more = self.outlook.more_runs
        return None if more is None or not self.costs else more * self.run_seconds

    @property
    def rounds(self) -> int:
        """How many it has, or has begun."""
        last = self.repeats[-1].run.repeat + 1 if self.repeats else self.first.run.repeat
        return -(-(last - self.first.run.repeat) // self.runs)

    @property
    def is_undecided(self) -> bool:
        """Whether it is compared and neither differs from the best nor equals it."""
        comparison = self.outlook.comparison
        return comparison is not None and comparison.verdict == "not distinguishable" and not comparison.equivalent


class Pursuit:
    """The rows of a plan under one rule. Everything it decides follows from the bundles under ``root``."""

    def __init__(self, firsts: Sequence[Manifest], rule: Stopping, root: Path, view: View, seats: Seats) -> None:
        """``firsts``: of each row the first repeat that counts; ``seats``: of those in turns by iteration."""
        self.rule, self._root, self._view = rule, root, view
        self.rows = [_row(first, root, rule, seats.get(first.hash)) for first in firsts]
        self._records: dict[str, Record | None] = {}

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """Every repeat that is there or was asked for, in running order: round by round, each second one backwards."""
        found: list[Manifest] = []
        for number, repeats in enumerate(zip_longest(*(row.repeats for row in self.rows))):
            found += filter(None, reversed(repeats) if number % 2 else repeats)
        return tuple(found)

    def more(self, ledger: Ledger) -> tuple[list[Manifest], float]:
        """The next round, as ``session.Further`` has it: one run of each row that needs it and for which the budget
        should do, beside those that it takes turns with; none at the end. Says which rows have ended."""
        self.look()
        for row in self.rows:
            state = row.gave_up or row.outlook.state
            if state not in ("more", *row.told):
                row.told.add(state)
                self._view.notice(f"{row_name(row.first)}: {ending(row)}")
        units = {row.partners for row in self.rows if row.state == "more"}
        # rows that go on, and those that they take turns with
        active = [row for row in self.rows if row.gave_up is None and row.partners in units]
        chosen = self._affordable(active, ledger.seconds_left())
        rounds = [max(each.rounds for each in chosen if each.partners == row.partners) for row in chosen]
        following: list[Manifest] = []
        for row, begun in zip(chosen, rounds, strict=True):
            number = row.first.run.repeat + begun * row.runs
            following += [as_repeat(row.first, number + more, row.sampled.iterations) for more in range(row.runs)]
            row.repeats += following[-row.runs :]
        longest = max((len(row.repeats) for row in chosen), default=0)
        to_come = [((row.outlook.more_runs or 1) - 1, row.run_seconds) for row in active]
        self._view.planned(sum(len(row.repeats) for row in self.rows) + sum(runs for runs, _ in to_come))
        return (following if longest % 2 else following[::-1]), sum(runs * seconds for runs, seconds in to_come)

    def look(self) -> None:
        """Judge every row by what the results folder holds of it."""
        for row in self.rows:
            for manifest in row.repeats:
                self._read(manifest.run.id)
        for row in self.rows:
            self._sample(row)
        if self.rule.iterations == "chosen":
            self._choose_iterations()
        for row, outlook in zip(self.rows, judge([row.sampled for row in self.rows], self.rule), strict=True):
            row.outlook = outlook

    def is_unfinished(self) -> bool:
        """Whether any row needs more runs than the results folder holds."""
        self.look()
        return any(row.state == "more" for row in self.rows)

    def _sample(self, row: PursuedRow) -> None:
        good: list[Record] = []
        costs: list[Cost] = []
        attempts = failed = suspect = 0
        row.seconds = 0.0
        for record in [self._records[each.run.id] for each in row.repeats if each.run.id in self._records]:
            if record is not None and record.status == "interrupted":
                continue
            attempts += 1
            row.seconds += self._seconds(record)
            measured = None if record is None else measured_run(record)
            valid = record is not None and counts(record, self.rule.with_suspect)
            failed = 0 if measured else failed + 1
            suspect = 0 if valid else suspect + 1
            if record is None or measured is None or not valid:
                continue
            good.append(record)
            iterating = fmean(sum(counted_seconds(each)) for each in self._together(record))
            costs.append(Cost(max(0.0, self._seconds(record) - iterating), fmean(measured.seconds)))
        if failed >= FAILED_IN_A_ROW:
            row.gave_up = f"{failed} runs in a row failed"
        elif suspect >= SUSPECT_IN_A_ROW:
            row.gave_up = f"{suspect} runs in a row are suspect (--with-suspect counts them)"
        row.costs = tuple(costs)
        found, known = runs_in_turns(good), row.sampled
        closed = row.gave_up is not None
        row.sampled = Sampled(found.runs, attempts, known.iterations, known.group, closed, found.turns)

    def _together(self, record: Record) -> list[Record]:
        """The runs that a run was started with, itself among them."""
        started = [self._records.get(run) for run in record.turns.rows] if record.turns else []
        return [each for each in started if each is not None] or [record]

    def _seconds(self, record: Record | None) -> float:
        """From start to end, of a start in turns its share."""
        if record is None or record.run.started is None or record.run.ended is None:
            return 0.0
        return max(0.0, record.run.ended - record.run.started) / len(self._together(record))

    def _read(self, run: str) -> None:
        """The record of a run that was made and has ended, None where it is damaged; once."""
        bundle = Bundle(self._root / run)
        if run in self._records or not bundle.path.is_dir() or bundle.running():
            return
        with suppress(StillRunning):  # another driver has begun it since
            try:
                self._records[run] = record_of(bundle)
            except DamagedBundle:
                self._records[run] = None

    def _choose_iterations(self) -> None:
        """Once, from the least runs of rows that are compared, so that the same runs always give the same choice."""
        groups: dict[Hashable, list[PursuedRow]] = {}
        for row in self.rows:
            groups.setdefault(row.sampled.group, []).append(row)
        least = self.rule.least
        for members in groups.values():
            going = [row for row in members if row.gave_up is None]
            if not going or any(len(row.costs) < least for row in going):
                continue
            means = [mean_cost(row.costs[:least]) for row in going]
            known = [(row.sampled.first(least), cost) for row, cost in zip(going, means, strict=True)]
            asked = members[0].first.measure.iterations
            possible = min(
                int((_LIMIT_SHARE * row.first.limits.run_seconds - cost.start_seconds) / cost.iteration_seconds)
                for row, cost in zip(going, means, strict=True)
            )
            most = max(asked, min(_MOST_TIMES * asked, possible))
            chosen = best_iterations(known, min(asked, FEWEST_ITERATIONS), most)
            for row in members:
                row.sampled = replace(row.sampled, iterations=chosen or asked)

    def _affordable(self, active: list[PursuedRow], left: float) -> list[PursuedRow]:
        """Rows whose runs fit into what is left of the budget: those without a verdict first, then those that need
        least. Where none does, all without a verdict, or all; so too before each has the least runs."""

        def needed(rows: Sequence[PursuedRow]) -> float:
            return sum(row.seconds_more or 0.0 for row in rows)

        if needed(active) <= left or any(row.sampled.attempts < self.rule.least for row in active):
            return active
        units: dict[Hashable, list[PursuedRow]] = {}
        for row in active:
            units.setdefault(row.unit, []).append(row)
        undecided = [row for row in active if any(each.is_undecided for each in units[row.unit])]
        chosen: list[PursuedRow] = []
        for unit in sorted(units.values(), key=lambda rows: (rows[0] not in undecided, needed(rows))):
            if needed([*chosen, *unit]) > left:
                break
            chosen += unit
        late = [row for row in active if row not in chosen and "late" not in row.told]
        if late:
            for row in late:
                row.told.add("late")
            more = sum(row.outlook.more_runs or 0 for row in late)
            self._view.notice(
                f"the budget should not do for {counted(len(late), 'row')}: about {counted(more, 'run')} "
                f"({span(needed(late))}) more, of {span(max(0.0, left))} that are left; "
                + ("they come last: " if chosen else "they get what there is, those without a verdict first: ")
                + "; ".join(row_name(row.first) for row in late)
            )
        return [row for row in active if row in chosen] or undecided or active


def ending(row: PursuedRow) -> str:
    """Where a row stands and why it gets no more runs, in words."""
    outlook = row.outlook
    width = "" if outlook.half_width is None else f"+-{percent(outlook.half_width)} % after "
    text = f"{width}{counted(len(row.sampled.runs), 'run')}"
    if row.gave_up is not None:
        return f"{text}; given up: {row.gave_up}"
    if outlook.state == "reached":
        return f"{text}; done"
    more = "" if outlook.more_runs is None else f"; about {counted(outlook.more_runs, 'more run', 'more runs')}"
    cost = "" if not more or row.seconds_more is None else f" ({span(row.seconds_more)}) would do"
    words = {"out of reach": "; out of reach", "at the most": "; the most runs were made", "more": ""}
    return f"{text}{words[outlook.state]}{more}{cost}"


def compared_with_none(firsts: Sequence[Manifest], rule: Stopping) -> list[str]:
    """Names of the rows that a rule for a difference compares with no other. Raises UsageError where these are all."""
    if rule.difference is None:
        return []
    groups = [_group(first) for first in firsts]
    alone = [first for first, group in zip(firsts, groups, strict=True) if groups.count(group) == 1]
    if len(alone) == len(firsts):
        raise UsageError(
            "--difference compares rows of equal work, and no two rows of this plan are; name two backends or layouts, "
            "or ask for --until"
        )
    return [row_name(first) for first in alone]


def _group(manifest: Manifest) -> Hashable:
    """Equal of rows that a ranking compares."""
    return setting_of(manifest, ""), manifest.work_hash, lengths_hash_of(manifest), manifest.layout.ranks


def _row(first: Manifest, root: Path, rule: Stopping, seat: Seat | None) -> PursuedRow:
    """With the repeats that are there already."""
    there = by_repeat(root, row_of(first.run.id))
    repeats = [as_repeat(first, number) for number in there if number >= first.run.repeat]
    group = _group(first)
    unit = group if seat is not None or rule.difference is not None else first.hash
    if seat is not None and seat.blocks > 1:
        unit = seat.group
    partners, runs = (first.hash, 1) if seat is None else (unit, seat.runs)
    return PursuedRow(first, unit, repeats, Sampled((), 0, first.measure.iterations, group), partners, runs)


def counts(record: Record, with_suspect: bool) -> bool:
    """Whether nothing speaks against the figures of a run, or they are taken as they are."""
    return not is_invalid(record) and (with_suspect or not is_suspect(record))


def mean_cost(costs: Sequence[Cost]) -> Cost:
    """Of several runs."""
    return Cost(fmean(cost.start_seconds for cost in costs), fmean(cost.iteration_seconds for cost in costs))


def _document(row: PursuedRow, name: str, names: Sequence[str], summary: Summary) -> dict[str, Any]:
    """One row at the end. ``half_width`` is relative; ``attempts``: all runs; ``against``: the best of its group."""
    outlook, state, reason, against = row.outlook, row.state, ending(row), None
    if state == "more":
        state = "interrupted" if summary.interrupted else "budget spent" if summary.left_by_budget else "not finished"
        reason = f"{reason}; {state}"
    if (compared := outlook.comparison) is not None and outlook.against is not None:
        ratio = {"ratio": compared.ratio.value, "low": compared.ratio.low, "high": compared.ratio.high}
        verdict = {"verdict": compared.verdict, "equivalent": compared.equivalent}
        against = {"row": names[outlook.against], **ratio, **verdict}
    return {
        "name": name,
        "manifest_hash": row.first.hash,
        "state": state,
        "reason": reason,
        "runs": len(row.sampled.runs),
        "attempts": row.sampled.attempts,
        "iterations": [*dict.fromkeys(len(run.seconds) for run in row.sampled.runs)],
        "half_width": outlook.half_width,
        "more_runs": outlook.more_runs,
        "more_seconds": row.seconds_more,
        "seconds": row.seconds,
        "against": against,
    }


def follow(pursuit: Pursuit, plan: Plan, work_on: Callable[..., Summary]) -> tuple[Plan, Summary, dict[str, Any]]:
    """Work on the plan of a pursuit to its end: the plan with all of its runs, and what came of it for the JSON."""
    summary = work_on(plan.model_copy(update={"manifests": pursuit.manifests}), further=pursuit.more)
    pursuit.look()  # once more, after the last run
    rows, short = pursuit.rows, [row_name(row.first) for row in pursuit.rows]
    names = [
        name if short.count(name) == 1 else f"{name}, {row.first.workload.name}, {row.first.workload.scaling}"
        for name, row in zip(short, rows, strict=True)
    ]
    found = {
        "asked": pursuit.rule.model_dump(mode="json"),
        "rows": [_document(row, name, names, summary) for row, name in zip(rows, names, strict=True)],
        "runs": sum(row.sampled.attempts for row in rows),
        "seconds": sum(row.seconds for row in rows),
    }
    return plan.model_copy(update={"manifests": pursuit.manifests}), summary, found


def lines(found: dict[str, Any], rule: Stopping) -> Iterator[str]:
    """For a terminal: a line for each row, then what all took."""
    yield f"asked: {rule.text()}"
    for row in found["rows"]:
        yield f"{row['name']}: {row['reason']}"
        if row["against"] is not None:
            yield f"{row['name']}: {_verdict(row['against'], rule.difference)} {row['against']['row']}"
    yield f"{counted(found['runs'], 'run')} in {span(found['seconds'])}"


def _verdict(found: dict[str, Any], margin: float | None) -> str:
    """``0.93 [0.91, 0.95], slower than``."""
    equal = f"equivalent within {percent(margin)} % to" if found["equivalent"] else ""
    told = f"{found['verdict']} than" if found["verdict"] != "not distinguishable" else ""
    words = " and ".join(filter(None, (told, equal))) or "not distinguishable from"
    return f"{interval(Interval(found['ratio'], found['low'], found['high']))}, {words}"
