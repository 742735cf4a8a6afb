"""Whether later runs of a manifest have the rate of the earlier ones, or the ratio to rows that took turns with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suite.bundle.record import Record, plain
from suite.bundle.verify import examined
from suite.conduct.planning.plan import Plan
from suite.conduct.running.display import row_name
from suite.conduct.running.pursuit import counts
from suite.conduct.running.state import ended
from suite.report.facts.environment import EnvironmentDifference, environment_differences
from suite.report.facts.pool import runs_in_turns
from suite.report.formatting.numbers import counted
from suite.spec.base import Frozen
from suite.stats.compare import LogDifference, compare
from suite.stats.deciding import MOST_RUNS, runs_to_decide
from suite.stats.intervals import RunSeconds, log_rates
from suite.stats.rounds import InTurns, starts_of
from suite.stats.turns import dispersion

ReproductionVerdict = Literal["reproduced", "not reproduced", "cannot tell"]
#: Of one end of a 95 % interval, and the chance that as many runs as are named have it on one side of the margin.
_LEVEL, _CHANCE = 0.025, 0.5


class Reproduction(Frozen):
    """The rate of the later runs over that of the earlier ones, with its 95 % interval; about how many more runs of
    each side would settle it, where it cannot be told, null where nothing tells how many."""

    verdict: ReproductionVerdict
    margin: float
    ratio: float | None
    low: float | None
    high: float | None
    runs_before: int
    runs_after: int
    more_before: int | None
    more_after: int | None
    reason: str

    def sentence(self) -> str:
        """The verdict for people."""
        within = f"within {100 * self.margin:g} %"
        if self.verdict == "reproduced":
            return f"reproduced {within}"
        if self.verdict == "not reproduced":
            assert self.ratio is not None
            way = "slower" if self.ratio < 1 else "faster"
            return f"not reproduced {within}: {100 * abs(self.ratio - 1):.1f} % {way}"
        return f"cannot tell whether it is reproduced {within}{self._wanting()}: {self.reason}"

    def _wanting(self) -> str:
        if self.more_after is None or self.more_before is None:
            return f", more than {MOST_RUNS} more runs a side" if self.runs_before > 1 and self.runs_after > 1 else ""
        named = ((self.more_after, "now"), (self.more_before, "of before"))
        sides = [f"{counted(count, 'more run', 'more runs')} {where}" for count, where in named if count]
        return f", about {' and '.join(sides)}" if sides else ""


def measured(records: Sequence[Record], with_suspect: bool) -> InTurns:
    """The runs that have a rate and no doubt about it, each with its turn."""
    return runs_in_turns(record for record in records if counts(record, with_suspect))


def reproduction(before: Sequence[RunSeconds], after: Sequence[RunSeconds], margin: float) -> Reproduction:
    """``reproduced`` where the 95 % interval of the ratio lies within 1 / (1 + margin) .. 1 + margin and ``not
    reproduced`` where it lies outside altogether. One run on either side, or runs without any spread, show nothing."""
    ratio = compare(after, before, margin).ratio if before and after else None
    low, high = (ratio.low, ratio.high) if ratio else (None, None)
    verdict: ReproductionVerdict = "cannot tell"
    if not before or not after:
        reason = f"no run {'now' if before else 'before'} has a rate that counts"
    elif low is None or high is None:
        reason = f"{'before' if len(before) < 2 else 'now'} is a single run, which tells no spread"
    elif len({run.rate for run in (*before, *after)}) == 1:
        reason = "all runs are equal to the last digit, which measured ones are not"
    else:
        verdict = _of_interval(low, high, margin)
        reason = "the interval is partly within the margin and partly outside" * (verdict == "cannot tell")
    more_before, more_after = (0, 0) if verdict != "cannot tell" else _more(before, after, margin)
    facts: dict[str, Any] = {"verdict": verdict, "margin": margin, "reason": reason}
    facts |= {"ratio": ratio.value if ratio else None, "low": low, "high": high}
    facts |= {"runs_before": len(before), "runs_after": len(after)}
    return Reproduction(**facts, more_before=more_before, more_after=more_after)


def _of_interval(low: float, high: float, margin: float) -> ReproductionVerdict:
    least, most = 1 / (1 + margin), 1 + margin
    if least <= low and high <= most:
        return "reproduced"
    return "not reproduced" if high < least or low > most else "cannot tell"


def _more(before: Sequence[RunSeconds], after: Sequence[RunSeconds], margin: float) -> tuple[int | None, int | None]:
    """How many more runs before and now would bring the interval to one side of the margin, with the spread and the
    ratio of these: more runs now where they suffice, else both sides become as many."""
    counts = len(before), len(after)
    degrees = sum(counts) - 2
    if min(counts) == 0 or degrees < 1:
        return max(0, 2 - counts[0]), max(0, 2 - counts[1])
    logs = log_rates(before), log_rates(after)
    means = [math.fsum(each) / len(each) for each in logs]
    squares = [(value - mean) ** 2 for each, mean in zip(logs, means, strict=True) for value in each]
    spread = math.sqrt(math.fsum(squares) / degrees)
    room = abs(math.log1p(margin) - abs(means[1] - means[0]))
    needed = runs_to_decide(room, spread, _LEVEL, chance=_CHANCE) if spread else 0
    if needed is None:
        return None, None
    # the error of the ratio is then that of so many on each side
    alone = math.ceil(needed * counts[0] / (2 * counts[0] - needed)) if 2 * counts[0] > needed else MOST_RUNS
    return (0, max(1, alone - counts[1])) if alone < MOST_RUNS else (needed - counts[0], max(0, needed - counts[1]))


class RatioAgain(Frozen):
    """The rate of the row over that of one in turns with it; ``ratio``: now over before, with its 95 % interval."""

    against: str
    before: float
    now: float
    ratio: float
    low: float
    high: float
    verdict: ReproductionVerdict


def ratios_again(
    before: Sequence[InTurns], now: Sequence[InTurns], names: Sequence[str], margin: float
) -> tuple[RatioAgain, ...]:
    """Of the first row to each of the others, whose ``names`` these are; without those that share too few starts with
    it (``suite.stats.turns``). A machine that is slower now leaves a ratio as it was."""
    olds, news = ([starts_of(rows[0], other) for other in rows[1:]] for rows in (before, now))
    earlier, later = (dispersion([pair for pair in side if pair is not None]) for side in (olds, news))
    found = []
    for name, old, new in zip(names, olds, news, strict=True):
        if old is None or new is None:
            continue
        one, other = old.difference(earlier), new.difference(later)
        error = math.hypot(one.error, other.error)
        # Welch's degrees of freedom
        degrees = error**4 / (one.error**4 / one.degrees + other.error**4 / other.degrees)
        difference = LogDifference(other.mean - one.mean, error, degrees, is_moderated=True)
        low, high = difference.interval()
        rates = {"before": math.exp(one.mean), "now": math.exp(other.mean), "ratio": math.exp(difference.mean)}
        verdict = _of_interval(low, high, margin)
        found.append(RatioAgain(against=name, **rates, low=low, high=high, verdict=verdict))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class RerunOutcome:
    """A rerun beside what it is compared with. ``reproduction`` is null where there is nothing to compare with;
    ``ratios``: to the rows that took turns with it, where they share enough starts."""

    reproduction: Reproduction | None
    ratios: tuple[RatioAgain, ...] = ()
    before: tuple[Record, ...]
    after: tuple[Record, ...]
    differences: tuple[EnvironmentDifference, ...]
    with_suspect: bool

    @property
    def verdict(self) -> ReproductionVerdict | None:
        """By the ratios where there are any, since a rate is also the machine's; all of them have to be reproduced."""
        found = {each.verdict for each in self.ratios}
        if not found:
            return None if self.reproduction is None else self.reproduction.verdict
        return "not reproduced" if "not reproduced" in found else "cannot tell" if len(found) > 1 else found.pop()

    def sentence(self) -> str:
        """The verdict for people; empty where there is nothing to compare with."""
        found = self.reproduction
        if not self.ratios or found is None:
            return "" if found is None else found.sentence()
        told = "cannot tell whether it is reproduced" if self.verdict == "cannot tell" else self.verdict
        rows = counted(len(self.ratios), "row")
        return f"{told} within {100 * found.margin:g} %, by its ratio to {rows} that it took turns with"

    def document(self) -> dict[str, Any]:
        """As ``suite rerun --json`` prints it: the verdict with its figures, what differs, and the new records."""
        found = self.reproduction
        return {
            **(found.model_dump(mode="json") if found else {}),
            "verdict": self.verdict,
            "ratios": [each.model_dump(mode="json") for each in self.ratios],
            "differences": [each.model_dump(mode="json") for each in self.differences],
            "compared_with": [record.run.id for record in self.before],
            "with_suspect": self.with_suspect,
            "records": plain(self.after),
        }


def rerun_outcome(
    before: Sequence[Record],
    plan: Plan,
    root: Path,
    margin: float,
    with_suspect: bool = False,
    partners: Sequence[tuple[Sequence[Record], Plan]] = (),
) -> RerunOutcome:
    """What became of a rerun, by its events, against ``before``; ``partners``: of rows that took turns with it."""
    sides = [
        (records, [found.record for _, _, found in ended(each, root, examined)])
        for records, each in ((before, plan), *partners)
    ]
    after = sides[0][1]
    earlier, later = ([measured(records, with_suspect) for records in side] for side in zip(*sides, strict=True))
    names = [row_name(other.manifests[0]) for _, other in partners]
    return RerunOutcome(
        reproduction=reproduction(earlier[0].runs, later[0].runs, margin) if before else None,
        ratios=ratios_again(earlier, later, names, margin),
        before=tuple(before),
        after=tuple(after),
        differences=tuple(environment_differences(before, after)) if before else (),
        with_suspect=with_suspect,
    )
