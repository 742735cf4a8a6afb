"""Whether later runs of a manifest have the rate of the earlier ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from suite.bundle.derive import StillRunning
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.bundle.verify import examined
from suite.conduct.planning.plan import Plan
from suite.report.facts.environment import EnvironmentDifference, environment_differences
from suite.report.facts.pool import counted_seconds
from suite.report.facts.suspect import is_invalid, is_suspect
from suite.spec.base import Frozen
from suite.stats.compare import compare
from suite.stats.intervals import RunSeconds, log_rates
from suite.stats.quantiles import student_quantile

ReproductionVerdict = Literal["reproduced", "not reproduced", "cannot tell"]
#: More runs than this are not worth a number.
MOST_RUNS = 200


class Reproduction(Frozen):
    """The rate of the later runs over that of the earlier ones, with its 95 % interval.

    ``more_after``, ``more_before``: about how many more runs of each side would settle it, where it cannot be told;
    null where nothing tells how many.
    """

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
        sides = [
            f"{count} more {'run' if count == 1 else 'runs'} {where}"
            for count, where in ((self.more_after, "now"), (self.more_before, "of before"))
            if count
        ]
        return f", about {' and '.join(sides)}" if sides else ""


def measured_runs(records: Sequence[Record], with_suspect: bool = False) -> list[RunSeconds]:
    """The samples and seconds of those records that have a rate and no doubt about it.

    ``with_suspect``: also of runs that something disturbed.
    """
    return [
        RunSeconds(record.counts.samples, counted_seconds(record))
        for record in records
        if record.status == "ok"
        and record.throughput is not None
        and record.counts is not None
        and not is_invalid(record)
        and (with_suspect or not is_suspect(record))
    ]


def reproduction(before: Sequence[RunSeconds], after: Sequence[RunSeconds], margin: float) -> Reproduction:
    """``reproduced`` where the 95 % interval of the ratio lies within 1 / (1 + margin) .. 1 + margin and ``not
    reproduced`` where it lies outside altogether. One run on either side, or runs without any spread, show nothing."""
    ratio = compare(after, before, margin).ratio if before and after else None
    low, high = (ratio.low, ratio.high) if ratio else (None, None)
    verdict, reason = _verdict(before, after, low, high, margin)
    more_before, more_after = (0, 0) if verdict != "cannot tell" else _more(before, after, margin)
    return Reproduction(
        verdict=verdict,
        margin=margin,
        ratio=ratio.value if ratio else None,
        low=low,
        high=high,
        runs_before=len(before),
        runs_after=len(after),
        more_before=more_before,
        more_after=more_after,
        reason=reason,
    )


def _verdict(
    before: Sequence[RunSeconds], after: Sequence[RunSeconds], low: float | None, high: float | None, margin: float
) -> tuple[ReproductionVerdict, str]:
    if not before or not after:
        return "cannot tell", f"no run {'now' if before else 'before'} has a rate that counts"
    if low is None or high is None:
        return "cannot tell", f"{'before' if len(before) < 2 else 'now'} is a single run, which tells no spread"
    if len({run.rate for run in (*before, *after)}) == 1:
        return "cannot tell", "all runs are equal to the last digit, which measured ones are not"
    least, most = 1 / (1 + margin), 1 + margin
    if least <= low and high <= most:
        return "reproduced", ""
    if high < least or low > most:
        return "not reproduced", ""
    return "cannot tell", "the interval is partly within the margin and partly outside"


def _more(before: Sequence[RunSeconds], after: Sequence[RunSeconds], margin: float) -> tuple[int | None, int | None]:
    """How many more runs before and now would bring the interval to one side of the margin, with the spread and the
    ratio of these: more runs now where they suffice, else as many on both sides."""
    counts = len(before), len(after)
    degrees = sum(counts) - 2
    if min(counts) == 0 or degrees < 1:
        return max(0, 2 - counts[0]), max(0, 2 - counts[1])
    logs = log_rates(before), log_rates(after)
    means = [math.fsum(each) / len(each) for each in logs]
    squares = [(value - mean) ** 2 for each, mean in zip(logs, means, strict=True) for value in each]
    spread = math.sqrt(math.fsum(squares) / degrees)
    room = abs(math.log1p(margin) - abs(means[1] - means[0]))
    found = _fewest(room, spread, counts, (0, 1)) if counts[0] > 1 else None
    return found or _fewest(room, spread, counts, (1, 1)) or (None, None)


def _fewest(room: float, spread: float, counts: tuple[int, int], add: tuple[int, int]) -> tuple[int, int] | None:
    for number in range(1, MOST_RUNS + 1):
        first, second = counts[0] + number * add[0], counts[1] + number * add[1]
        if min(first, second) < 2:
            continue
        share = 1 / first + 1 / second
        # Welch's degrees of freedom for equal variances
        degrees = share**2 / (1 / (first**2 * (first - 1)) + 1 / (second**2 * (second - 1)))
        half = student_quantile(degrees) * spread * math.sqrt(share)
        if half <= room:
            return number * add[0], number * add[1]
    return None


class RerunOutcome(Frozen):
    """A rerun beside what it is compared with. ``reproduction`` is null where there is nothing to compare with."""

    reproduction: Reproduction | None
    before: tuple[Record, ...]
    after: tuple[Record, ...]
    differences: tuple[EnvironmentDifference, ...]
    with_suspect: bool

    def document(self) -> dict[str, Any]:
        """As ``suite rerun --json`` prints it: the verdict with its figures, what differs, and the new records."""
        found = self.reproduction
        return {
            **(found.model_dump(mode="json") if found else {"verdict": None}),
            "differences": [each.model_dump(mode="json") for each in self.differences],
            "compared_with": [record.run.id for record in self.before],
            "with_suspect": self.with_suspect,
            "records": [record.model_dump(mode="json", by_alias=True) for record in self.after],
        }


def rerun_outcome(
    before: Sequence[Record], plan: Plan, root: Path, margin: float, with_suspect: bool = False
) -> RerunOutcome:
    """What became of the runs of a rerun, as their events give them, against the records of ``before``."""
    after = []
    for manifest in plan.manifests:
        bundle = Bundle(root / manifest.run.id)
        if bundle.path.is_dir() and not bundle.running():
            with suppress(DamagedBundle, StillRunning):
                after.append(examined(bundle).record)
    return RerunOutcome(
        reproduction=reproduction(measured_runs(before, with_suspect), measured_runs(after, with_suspect), margin)
        if before
        else None,
        before=tuple(before),
        after=tuple(after),
        differences=tuple(environment_differences(before, after)) if before else (),
        with_suspect=with_suspect,
    )
