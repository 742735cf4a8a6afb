"""Adding runs to the rows of a plan, round by round, until its stopping rule asks for no more."""

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from suite.bundle.derive import StillRunning, record_of
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.conduct.planning.turns import NO_SEATS, Seat, Seats
from suite.conduct.running.progress import View, row_name
from suite.conduct.running.session import Ledger
from suite.conduct.running.state import by_repeat, row_of
from suite.report.facts.pool import counted_seconds, setting_of, turn_of
from suite.report.facts.rollout import lengths_hash_of
from suite.report.facts.suspect import is_invalid, is_suspect
from suite.report.facts.variants import launch_setting_of
from suite.report.formatting.numbers import counted, percent, span
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest, Stopping
from suite.spec.resolve import as_repeat
from suite.stats.intervals import RunSeconds
from suite.stats.precision import Outlook, Sampled, judge
from suite.stats.rounds import Turn
from suite.stats.split import Cost, best_iterations
from suite.stats.steady_state import FEWEST_ITERATIONS

#: A row whose runs fail, or are suspect, so often in a row is given up.
FAILED_IN_A_ROW, SUSPECT_IN_A_ROW = 2, 4
#: Chosen iterations are at most so many times those that were asked for, and leave this share of the limit unused.
_MOST_TIMES, _LIMIT_SHARE = 4, 0.5


@dataclass
class PursuedRow:
    """A row of the plan: its repeats so far, what came of them, and where it stands.

    ``group``: equal of rows that are compared, ``unit`` of those that get runs together or not at all, ``partners`` of
    those that are started together; ``runs``: in each round. ``gave_up``: why it gets no more runs though it needs
    them. ``seconds``: of all its runs so far, of starts in turns its share.
    """

    first: Manifest
    group: Hashable
    unit: Hashable
    repeats: list[Manifest]
    iterations: int
    sampled: Sampled
    partners: Hashable
    runs: int
    outlook: Outlook | None = None
    gave_up: str | None = None
    costs: tuple[Cost, ...] = ()
    seconds: float = 0.0
    told: set[str] = field(default_factory=set)

    @property
    def cost(self) -> Cost | None:
        """Of its runs that count, in the mean."""
        return mean_cost(self.costs) if self.costs else None

    @property
    def rounds(self) -> int:
        """How many it has, or has begun."""
        last = self.repeats[-1].run.repeat + 1 if self.repeats else self.first.run.repeat
        return -(-(last - self.first.run.repeat) // self.runs)

    @property
    def goes_on(self) -> bool:
        return self.gave_up is None and self.outlook is not None and self.outlook.state == "more"

    @property
    def is_undecided(self) -> bool:
        """Whether it is compared and neither differs from the best nor equals it."""
        comparison = self.outlook.comparison if self.outlook else None
        return comparison is not None and comparison.verdict == "not distinguishable" and not comparison.equivalent

    @property
    def seconds_more(self) -> float | None:
        """What the runs that it will take should last."""
        if self.outlook is None or self.outlook.more_runs is None or self.cost is None:
            return None
        return self.outlook.more_runs * self.cost.run_seconds(self.iterations)


class Pursuit:
    """The rows of a plan under one rule. Everything it decides follows from the bundles under ``root``."""

    def __init__(
        self, firsts: Sequence[Manifest], rule: Stopping, root: Path, view: View, seats: Seats = NO_SEATS
    ) -> None:
        """``firsts``: of each row the first repeat that counts; ``seats``: of those in turns by iteration."""
        self.rule, self._root, self._view = rule, root, view
        self.rows = [_row(first, root, rule, seats.get(first.hash)) for first in firsts]
        self._records: dict[str, Record | None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the rows, each its own: the scaling is told where rows differ in nothing else that a name tells."""
        short = [row_name(row.first) for row in self.rows]
        return tuple(
            name if short.count(name) == 1 else f"{name}, {row.first.workload.name}, {row.first.workload.scaling}"
            for name, row in zip(short, self.rows, strict=True)
        )

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """Every repeat that is there or was asked for, in running order: round by round, each second one backwards."""
        rounds = max((len(row.repeats) for row in self.rows), default=0)
        found: list[Manifest] = []
        for number in range(rounds):
            present = [row.repeats[number] for row in self.rows if number < len(row.repeats)]
            found += reversed(present) if number % 2 else present
        return tuple(found)

    def more(self, ledger: Ledger) -> tuple[list[Manifest], float]:
        """The next round, and seconds that others should take after it (``suite.conduct.running.session.Further``).

        One run of each row that needs it and for which the budget should do, beside those that it takes turns with;
        none at the end.
        """
        self.look()
        for row in self.rows:
            self._tell(row)
        units = {row.partners for row in self.rows if row.goes_on}
        # rows that go on, and those that they take turns with
        active = [row for row in self.rows if row.gave_up is None and row.partners in units]
        chosen = self._affordable(active, ledger.seconds_left())
        rounds: dict[Hashable, int] = {}
        for row in chosen:
            rounds[row.partners] = max(row.rounds, rounds.get(row.partners, 0))
        following = []
        for row in chosen:
            number = row.first.run.repeat + rounds[row.partners] * row.runs
            following += [as_repeat(row.first, number + more, row.iterations) for more in range(row.runs)]
            row.repeats += following[-row.runs :]
        longest = max((len(row.repeats) for row in chosen), default=0)
        to_come = sum((row.outlook.more_runs or 1) - 1 for row in active if row.outlook)
        self._view.planned(sum(len(row.repeats) for row in self.rows) + to_come)
        one_run = [row.cost.run_seconds(row.iterations) if row.cost else 0.0 for row in active]
        rest = sum(max(0.0, (row.seconds_more or 0.0) - one) for row, one in zip(active, one_run, strict=True))
        return (following if longest % 2 else following[::-1]), rest

    def look(self) -> None:
        """Judge every row by what the results folder holds of it."""
        over = {manifest.run.id for row in self.rows for manifest in row.repeats if self._is_over(manifest)}
        for row in self.rows:
            self._sample(row, over)
        self._choose_iterations()
        outlooks = judge([row.sampled for row in self.rows], self.rule)
        for row, outlook in zip(self.rows, outlooks, strict=True):
            row.outlook = outlook

    def is_unfinished(self) -> bool:
        """Whether any row needs more runs than the results folder holds."""
        self.look()
        return any(row.goes_on for row in self.rows)

    def _sample(self, row: PursuedRow, over: Container[str]) -> None:
        """``over``: ids of the runs that have ended."""
        runs: list[RunSeconds] = []
        turns: list[Turn | None] = []
        costs: list[Cost] = []
        attempts = failed = suspect = 0
        row.seconds = 0.0
        for manifest in row.repeats:
            if manifest.run.id not in over:
                continue
            record = self._records[manifest.run.id]
            if record is not None and record.status == "interrupted":
                continue
            attempts += 1
            row.seconds += self._seconds(record)
            measured = None if record is None or record.status != "ok" else _measured(record)
            valid = record is not None and self._counts(record)
            failed = 0 if measured else failed + 1
            suspect = 0 if valid else suspect + 1
            if record is None or measured is None or not valid:
                continue
            runs.append(measured)
            turns.append(turn_of(record, launch_setting_of(record)))
            total = sum(measured.seconds)
            costs.append(Cost(max(0.0, self._seconds(record) - self._counted(record)), total / len(measured.seconds)))
        if failed >= FAILED_IN_A_ROW:
            row.gave_up = f"{failed} runs in a row failed"
        elif suspect >= SUSPECT_IN_A_ROW:
            row.gave_up = f"{suspect} runs in a row are suspect (--with-suspect counts them)"
        row.costs = tuple(costs)
        closed = row.gave_up is not None
        row.sampled = Sampled(tuple(runs), attempts, row.iterations, row.group, closed, tuple(turns))

    def _together(self, record: Record) -> list[Record]:
        """The runs that a run was started with, itself among them."""
        started = [self._records.get(run) for run in record.turns.rows] if record.turns else []
        return [each for each in started if each is not None] or [record]

    def _seconds(self, record: Record | None) -> float:
        """From start to end, of a start in turns its share."""
        if record is None or record.run.started is None or record.run.ended is None:
            return 0.0
        return max(0.0, record.run.ended - record.run.started) / len(self._together(record))

    def _counted(self, record: Record) -> float:
        """Seconds of counted iterations, in the mean over the runs of a start."""
        return fmean(sum(counted_seconds(each)) for each in self._together(record))

    def _counts(self, record: Record) -> bool:
        """Whether nothing speaks against the figures of a run, or they are taken as they are."""
        return not is_invalid(record) and (self.rule.with_suspect or not is_suspect(record))

    def _is_over(self, manifest: Manifest) -> bool:
        """Whether a run was made and has ended; its record, or None where it is damaged, is read once."""
        name = manifest.run.id
        bundle = Bundle(self._root / name)
        if name not in self._records and bundle.path.is_dir() and not bundle.running():
            try:
                self._records[name] = record_of(bundle)
            except DamagedBundle:
                self._records[name] = None
            except StillRunning:
                return False  # another driver has begun it since
        return name in self._records

    def _choose_iterations(self) -> None:
        """Once, from the least runs of rows that are compared, so that the same runs always give the same choice."""
        if self.rule.iterations == "fixed":
            return
        groups: dict[Hashable, list[PursuedRow]] = {}
        for row in self.rows:
            groups.setdefault(row.group, []).append(row)
        least = self.rule.least
        for members in groups.values():
            going = [row for row in members if row.gave_up is None]
            if not going or any(len(row.costs) < least for row in going):
                continue
            means = [mean_cost(row.costs[:least]) for row in going]
            known = [(row.sampled.first(least), cost) for row, cost in zip(going, means, strict=True)]
            asked = members[0].first.measure.iterations
            room = [_LIMIT_SHARE * row.first.limits.run_seconds for row in going]
            possible = min(
                int((seconds - cost.start_seconds) / cost.iteration_seconds)
                for seconds, cost in zip(room, means, strict=True)
            )
            most = max(asked, min(_MOST_TIMES * asked, possible))
            chosen = best_iterations(known, min(asked, FEWEST_ITERATIONS), most)
            for row in members:
                row.iterations = chosen or asked
                row.sampled = replace(row.sampled, iterations=row.iterations)

    def _affordable(self, active: list[PursuedRow], left: float | None) -> list[PursuedRow]:
        """Rows whose runs fit into what is left of the budget: those without a verdict first, then those that need
        least. Where none does, all without a verdict, or all.

        All too before each has the least runs: with fewer there is nothing to tell of any.
        """
        needs = [row.seconds_more or 0.0 for row in active]
        begun = all(row.sampled.attempts >= self.rule.least for row in active)
        if left is None or sum(needs) <= left or not begun:
            return active
        units: dict[Hashable, list[PursuedRow]] = {}
        for row in active:
            units.setdefault(row.unit, []).append(row)
        undecided = [row for row in active if any(each.is_undecided for each in units[row.unit])]

        def order(rows: list[PursuedRow]) -> tuple[bool, float]:
            return rows[0] not in undecided, sum(row.seconds_more or 0.0 for row in rows)

        total, chosen = 0.0, []
        for unit in sorted(units.values(), key=order):
            total += sum(row.seconds_more or 0.0 for row in unit)
            if total > left:
                break
            chosen += unit
        late = [row for row in active if row not in chosen and "late" not in row.told]
        if late:
            for row in late:
                row.told.add("late")
            more = sum(row.outlook.more_runs or 0 for row in late if row.outlook)
            seconds = sum(row.seconds_more or 0.0 for row in late)
            self._view.notice(
                f"the budget should not do for {counted(len(late), 'row')}: about {counted(more, 'run')} "
                f"({span(seconds)}) more, of {span(max(0.0, left))} that are left; "
                + ("they come last: " if chosen else "they get what there is, those without a verdict first: ")
                + "; ".join(row_name(row.first) for row in late)
            )
        return [row for row in active if row in chosen] or undecided or active

    def _tell(self, row: PursuedRow) -> None:
        """A line when a row has ended, once for each way of ending."""
        state = row.gave_up or (row.outlook.state if row.outlook else "more")
        if state == "more" or state in row.told:
            return
        row.told.add(state)
        self._view.notice(f"{row_name(row.first)}: {ending(row)}")


def ending(row: PursuedRow) -> str:
    """Where a row stands and why it gets no more runs, in words."""
    outlook = row.outlook
    width = "" if outlook is None or outlook.half_width is None else f"+-{percent(outlook.half_width)} % after "
    text = f"{width}{counted(len(row.sampled.runs), 'run')}"
    if row.gave_up is not None:
        return f"{text}; given up: {row.gave_up}"
    if outlook is None or outlook.state == "reached":
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
    iterations = first.measure.iterations
    group = _group(first)
    unit = group if seat is not None or rule.difference is not None else first.hash
    if seat is not None and seat.blocks > 1:
        unit = seat.group
    partners, runs = (first.hash, 1) if seat is None else (unit, seat.runs)
    return PursuedRow(first, group, unit, repeats, iterations, Sampled((), 0, iterations, group), partners, runs)


def _measured(record: Record) -> RunSeconds | None:
    if record.throughput is None or record.counts is None:
        return None
    return RunSeconds(record.counts.samples, counted_seconds(record))


def mean_cost(costs: Sequence[Cost]) -> Cost:
    """Of several runs."""
    return Cost(fmean(cost.start_seconds for cost in costs), fmean(cost.iteration_seconds for cost in costs))
