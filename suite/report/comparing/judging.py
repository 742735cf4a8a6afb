"""The rows of a comparison: whole iterations, phases and peaks of memory, each judged over all rows together."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from suite.report.comparing.model import ComparedMemory, ComparedPhase, ComparedRow, MemoryVerdict, Tested
from suite.report.comparing.pairing import Measured, copies
from suite.report.facts.costs import OF_THE_RUN, peaks_of
from suite.report.facts.noise import in_part, in_turns
from suite.spec.phases import ALL_NAMES
from suite.stats.compare import DEFAULT_MARGIN, ComparisonVerdict, LogDifference, welch
from suite.stats.deciding import POWER, runs_to_decide
from suite.stats.intervals import RunSeconds, log_rates
from suite.stats.moderated import Prior, mean_of, moderate, slow_runs
from suite.stats.multiple import LEVEL, Family, one_sided, together, two_sided
from suite.stats.rounds import InTurns, find_rounds, paired, starts_of


@dataclass(frozen=True)
class Judged:
    """Rate of the second side over the first. ``difference``: null where nothing could be tested; ``reason``: why."""

    ratio: float
    difference: LogDifference | None
    reason: str | None = None

    @property
    def probability(self) -> float | None:
        """That a ratio is so far from 1 where there is no difference."""
        found = self.difference
        return None if found is None else two_sided(found.mean, found.error, found.degrees)


@dataclass(frozen=True)
class JudgedTogether:
    each: tuple[Judged, ...]
    family: Family
    priors: dict[str, Prior | None]

    def verdict(self, place: int) -> ComparisonVerdict:
        """Of one test, which holds with all the others."""
        one = self.each[place]
        if one.probability is None or one.probability > self.family.each:
            return "not distinguishable"
        return "faster" if one.ratio > 1 else "slower"

    def tested(self, place: int) -> Tested:
        """With an interval that leaves 1 out exactly where the verdict is a difference."""
        ratio, found = self.each[place].ratio, self.each[place].difference
        low, high = (None, None) if found is None else found.interval(1 - self.family.each)
        error, degrees = (None, None) if found is None else (found.error, found.degrees)
        return Tested(ratio=ratio, low=low, high=high, log_error=error, degrees=degrees)

    def equal(self) -> list[bool | None]:
        """Which are shown to be equal within the margin: two one-sided tests each (Schuirmann 1987), all together."""
        most = math.log1p(DEFAULT_MARGIN)
        probabilities = [
            max(one_sided(most - sign * found.mean, found.error, found.degrees) for sign in (-1, 1))
            for one in self.each
            if (found := one.difference) is not None
        ]
        positive = iter(together(probabilities).positive)
        return [None if one.difference is None else next(positive) for one in self.each]

    def runs_needed(self, place: int, runs: tuple[int, int]) -> int | None:
        """Runs a side that would likely show equal rates to be equal, by the noise alone; null: out of reach."""
        found = self.each[place].difference
        if found is None:
            return None
        spread, lent = run_spread(found.error, found.degrees, runs)
        level = LEVEL / len(self.family.positive)
        # both of the one-sided tests must be positive, so each gets half of what may go wrong
        return runs_to_decide(math.log1p(DEFAULT_MARGIN), spread, level, lent, 1 - (1 - POWER) / 2)


def run_spread(error: float, degrees: float, runs: tuple[int, int]) -> tuple[float, float]:
    """Standard deviation of one run's log rate that the error of a ratio implies, and the degrees that others lent."""
    return error / math.sqrt(1 / runs[0] + 1 / runs[1]), max(0.0, degrees - (sum(runs) - 2))


def judge_together(
    sides: Sequence[tuple[Sequence[RunSeconds], Sequence[RunSeconds]]],
    reasons: Sequence[str | None],
    alike: Sequence[str],
    within: Mapping[int, LogDifference] = MappingProxyType({}),
) -> JudgedTogether:
    """Welch's test on the logarithms of the runs' rates, for each pair of sides that has no reason against it.
    ``alike``: a word of pairs whose runs vary alike, so that their variances are moderated together. ``within``: by
    place, what turns by iteration say of a difference, in Welch's place."""
    rates: dict[str, list[list[float]]] = defaultdict(list)
    for pair, reason, word in zip(sides, reasons, alike, strict=True):
        rates[word] += [log_rates(runs) for runs in pair] if reason is None else []
    priors = {word: moderate(groups) for word, groups in rates.items()}
    each: list[Judged] = []
    for place, ((before, after), reason, word) in enumerate(zip(sides, reasons, alike, strict=True)):
        turned = within.get(place)
        distance = turned.mean if turned else mean_of(log_rates(after)) - mean_of(log_rates(before))
        found = None if reason else turned or _cautious(before, after, priors[word])
        if found is None and reason is None:
            reason = f"{len(before)} and {len(after)} runs: at least 2 a side tell the spread between runs"
        each.append(Judged(math.exp(min(max(distance, -700.0), 700.0)), found, reason))
    probabilities = [known for one in each if (known := one.probability) is not None]
    return JudgedTogether(tuple(each), together(probabilities), priors)


def _cautious(before: Sequence[RunSeconds], after: Sequence[RunSeconds], prior: Prior | None) -> LogDifference | None:
    """With the moderated variance, but only half of the degrees of freedom that the other rows lend.

    Verdicts of many rows are made far out in the tails, where it shows that variances of rows are not drawn from quite
    the distribution that is assumed: with all degrees 16 equal rows of 3 runs, whose noise is between 2 and 5 %, show a
    difference in 8 % of cases, with half in 4 (``tests/report/test_comparing.py`` holds them to 5).
    """
    own, found = welch(after, before), welch(after, before, prior)
    if own is None or found is None:
        return None
    return replace(found, degrees=own.degrees + max(0.0, found.degrees - own.degrees) / 2)


Pair = tuple[Measured, Measured]


def judge(pairs: Sequence[Pair]) -> tuple[ComparedRow, ...]:
    """Whole iterations are one family of tests; so are phases, peaks of memory, and claims of equality."""
    reasons = [copies(*pair) for pair in pairs]
    sides = [(before.row.measured, after.row.measured) for before, after in pairs]
    within = _within([(in_turns(before.row), in_turns(after.row)) for before, after in pairs])
    whole = judge_together(sides, reasons, [_machine(pair, place) for place, pair in enumerate(pairs)], within)
    equal = whole.equal()
    changed = [whole.verdict(place) != "not distinguishable" for place in range(len(pairs))]
    phases = _phases(pairs, reasons, changed)
    memories = _memories(pairs)
    rows = []
    for place, (before, after) in enumerate(pairs):
        one = whole.each[place]
        runs = (len(before.row.measured), len(after.row.measured))
        prior = whole.priors[_machine((before, after), place)]
        slow = [len(slow_runs(log_rates(side.row.measured), prior)) for side in (before, after)]
        in_turn = one.difference is not None and bool(starts_of(in_turns(after.row), in_turns(before.row)))
        rows.append(
            ComparedRow(
                name=after.name,
                size=after.row.size,
                ranks=after.row.ranks,
                backend=after.row.backend,
                layout=after.row.layout,
                variant=after.row.variant or before.row.variant,
                runs_before=runs[0],
                runs_after=runs[1],
                verdict=whole.verdict(place),
                equivalent=equal[place],
                probability=one.probability,
                reason=one.reason,
                runs_needed=None if changed[place] or equal[place] else whole.runs_needed(place, runs),
                unsteady_before=0 if in_turn else before.row.unsteady_runs,
                unsteady_after=0 if in_turn else after.row.unsteady_runs,
                slow_before=slow[0],
                slow_after=slow[1],
                phases=phases[place],
                memory=memories[place],
                **dict(whole.tested(place)),
            )
        )
    return tuple(rows)


def _within(sides: Sequence[tuple[InTurns, InTurns]]) -> dict[int, LogDifference]:
    """By place, of pairs that took turns by iteration, the difference of their log rates."""
    rounds = find_rounds([list(pair) for pair in sides], None)
    if rounds is None or rounds.starts is None:
        return {}
    found = [paired(after, before, rounds) for before, after in sides]
    return {place: one.difference for place, one in enumerate(found) if one and one.turns}


def _machine(pair: Pair, place: int) -> str:
    """What rows have in common whose runs vary alike: the machine; nothing where the sides were on different ones."""
    before, after = (side.hardware for side in pair)
    return repr(before) if before == after else f"row {place}"


def _phases(
    pairs: Sequence[Pair], reasons: Sequence[str | None], changed: Sequence[bool]
) -> list[tuple[ComparedPhase, ...]]:
    """``changed``: rows that differ as a whole, of which phases have a share."""
    sides = {
        (place, name): (first, second)
        for place, ((before, after), reason) in enumerate(zip(pairs, reasons, strict=True))
        for name in ALL_NAMES
        if (first := in_part(before.row, (name,))) and (second := in_part(after.row, (name,))) and reason is None
    }
    # a phase varies like that phase of other rows, and not like other phases of its own
    tests = judge_together(
        [(first.runs, second.runs) for first, second in sides.values()],
        [None] * len(sides),
        [f"{name} {_machine(pairs[place], place)}" for place, name in sides],
        _within(list(sides.values())),
    )
    tested = {key: test for test, key in enumerate(sides)}
    return [
        tuple(
            _phase(pair, name, tests, tested.get((place, name)), changed[place])
            for name in ALL_NAMES
            if any(side.row.phase(name) for side in pair)
        )
        for place, pair in enumerate(pairs)
    ]


def _phase(pair: Pair, name: str, tests: JudgedTogether, place: int | None, changed: bool) -> ComparedPhase:
    before, after = (cost.seconds if (cost := side.row.phase(name)) else None for side in pair)
    was, is_now = (math.fsum(phase.seconds for phase in side.row.phases) for side in pair)
    has_shares = changed and is_now != was and not pair[1].row.setting.asynchronous
    ratio = before / after if before and after else None
    untested = Tested(ratio=ratio, low=None, high=None, log_error=None, degrees=None)
    tested = untested if place is None else tests.tested(place)
    return ComparedPhase(
        **dict(tested),
        name=name,
        before_seconds=before,
        after_seconds=after,
        verdict=None if place is None or tested.degrees is None else tests.verdict(place),
        share_of_change=((after or 0.0) - (before or 0.0)) / (is_now - was) if has_shares else None,
    )


def _memories(pairs: Sequence[Pair]) -> list[ComparedMemory | None]:
    """Peaks of the runs that have a rate. Unlike seconds, peaks may well be equal to the byte."""
    peaks = [[peaks_of([one.memory for one in side.records], OF_THE_RUN) for side in pair] for pair in pairs]
    known = [place for place, (before, after) in enumerate(peaks) if before[1] and before[0] == after[0]]
    sides = [(_as_rates(before[1]), _as_rates(after[1])) for before, after in (peaks[place] for place in known)]
    tests = judge_together(sides, [None] * len(sides), [f"row {place}" for place in known])
    found: list[ComparedMemory | None] = [None] * len(pairs)
    for test, place in enumerate(known):
        (meaning, before), (_, after) = peaks[place]
        found[place] = ComparedMemory(
            **dict(tests.tested(test)),
            of="reserved" if meaning == "reserved" else "resident",
            before_bytes=math.fsum(before) / len(before),
            after_bytes=math.fsum(after) / len(after),
            verdict=_MORE_OR_LESS[tests.verdict(test)] if tests.each[test].difference else None,
        )
    return found


_MORE_OR_LESS: dict[ComparisonVerdict, MemoryVerdict] = {
    "faster": "more",
    "slower": "less",
    "not distinguishable": "not distinguishable",
}


def _as_rates(peaks: Sequence[int]) -> tuple[RunSeconds, ...]:
    return tuple(RunSeconds(float(peak), (1.0,)) for peak in peaks)
