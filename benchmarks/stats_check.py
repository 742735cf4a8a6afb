"""Do intervals, verdicts and alarms keep what they promise? Simulated with the suite's own functions, seeded.

``python -m benchmarks.stats_check [--write docs/measuring.md]`` prints a table, one line for each promise, and exits 1
where a figure leaves its bounds. ``--write`` puts the table between the marks in that file.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy

from suite.launch.probe import host_facts
from suite.stats.compare import compare
from suite.stats.intervals import RunSeconds, pooled_rate, rate_interval
from suite.stats.moderated import Prior, moderate, slow_runs
from suite.stats.steady_state import steady_state

ROWS = 16
PLANS = 1000
SEED = 14
#: Spread of runs, and of the iterations of a run, as standard deviations of logarithms.
RUN_NOISE, ITERATION_NOISE = 0.02, 0.03
COVERED = (0.93, 0.97)
TOLD_OR_COVERED = (0.93, 1.0)
BEGIN, END = "<!-- begin: make stats-check -->", "<!-- end: make stats-check -->"

Generator = numpy.random.Generator
#: (plans, rows, runs, iterations) -> seconds of iterations, and the part of each run's log time that disturbed it
Noise = Callable[[Generator, tuple[int, int, int, int]], tuple[numpy.ndarray, numpy.ndarray]]


class Line(NamedTuple):
    """A simulated share with the bounds that it has to keep; none where it is shown for information."""

    what: str
    share: float
    bounds: tuple[float, float] | None = None

    @property
    def holds(self) -> bool:
        return self.bounds is None or self.bounds[0] <= self.share <= self.bounds[1]

    def cells(self) -> str:
        """As a line of a Markdown table."""
        if self.bounds is None:
            return f"| {self.what} | {100 * self.share:.1f} | | |"
        low, high = self.bounds
        limits = f"at most {100 * high:g}" if low == 0 else f"at least {100 * low:g}"
        limits = f"{100 * low:g} to {100 * high:g}" if low > 0 and high < 1 else limits
        return f"| {self.what} | {100 * self.share:.1f} | {limits} | {'holds' if self.holds else 'FAILS'} |"


def lasting(rng: Generator, shape: tuple[int, ...], correlation: float, spread: float) -> numpy.ndarray:
    """First-order autoregressive noise along the last axis, stationary from the first value on."""
    noise = rng.normal(0, spread, shape)
    noise[..., 1:] *= math.sqrt(1 - correlation**2)
    for index in range(1, shape[-1]):
        noise[..., index] += correlation * noise[..., index - 1]
    return noise


def plain(run_noise: float = RUN_NOISE, correlation: float = 0.0) -> Noise:
    """Runs that vary, and iterations in them."""

    def make(rng: Generator, shape: tuple[int, int, int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
        logs = rng.normal(0, run_noise, shape[:3])[..., None] + lasting(rng, shape, correlation, ITERATION_NOISE)
        return numpy.exp(logs), numpy.zeros(shape[:3])

    return make


def drifting(rng: Generator, shape: tuple[int, int, int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Every run gets slower or faster over its window, by an amount of its own (standard deviation 5 %)."""
    seconds, disturbed = plain()(rng, shape)
    steps = numpy.linspace(0, 1, shape[3])
    return seconds * numpy.exp(rng.normal(0, 0.05, shape[:3])[..., None] * steps), disturbed


def throttled(share: float, loss: float) -> Noise:
    """From a random iteration on a run is slower, in this share of the runs."""

    def make(rng: Generator, shape: tuple[int, int, int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
        seconds, _ = plain()(rng, shape)
        start = rng.integers(0, shape[3], shape[:3])
        start[rng.random(shape[:3]) >= share] = shape[3]
        slowed = seconds * numpy.where(numpy.arange(shape[3]) >= start[..., None], 1 + loss, 1.0)
        return slowed, numpy.log(slowed.mean(-1) / seconds.mean(-1))

    return make


def slowed(share: float, factor: float) -> Noise:
    """Whole runs are slower by a factor, in this share of the runs."""

    def make(rng: Generator, shape: tuple[int, int, int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
        seconds, _ = plain()(rng, shape)
        disturbed = numpy.where(rng.random(shape[:3]) < share, math.log(factor), 0.0)
        return seconds * numpy.exp(disturbed)[..., None], disturbed

    return make


def unlike(rng: Generator, shape: tuple[int, int, int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Every second row is four times as noisy as the others."""
    noise = numpy.where(numpy.arange(shape[1]) % 2, 0.04, 0.01)[None, :, None]
    logs = rng.normal(0, 1, shape[:3]) * noise
    return numpy.exp(logs)[..., None] * numpy.ones(shape), numpy.zeros(shape[:3])


class Plan(NamedTuple):
    """One simulated plan: the runs of each row, what its rows share, and which of its rows are told as two modes."""

    rows: list[list[RunSeconds]]
    prior: Prior | None
    told: list[bool]


def plans(seconds: numpy.ndarray, is_moderated: bool = True) -> Iterator[Plan]:
    """Each plan with runs of one iteration of the mean seconds, which is all that pooled figures take from a run."""
    for plan in seconds.mean(-1):
        logs = (-numpy.log(plan)).tolist()
        prior = moderate(logs) if is_moderated else None
        rows = [[RunSeconds(1.0, (second,)) for second in row] for row in plan.tolist()]
        yield Plan(rows, prior, [bool(slow_runs(row, prior)) for row in logs])


def share(found: Sequence[bool] | numpy.ndarray) -> float:
    return float(numpy.mean(numpy.asarray(found, dtype=float)))


class Covered(NamedTuple):
    """By plan and row: is the long-run rate covered, is that of undisturbed runs, and is the row told as two modes?"""

    long_run: numpy.ndarray
    undisturbed: numpy.ndarray
    told: numpy.ndarray


def covered(noise: Noise, count: int, runs: int, iterations: int, is_moderated: bool = True) -> Covered:
    """Of 95 % intervals of rows' rates; both truths come from all simulated runs together."""
    seconds, disturbed = noise(numpy.random.default_rng(SEED), (count, ROWS, runs, iterations))
    logs = -numpy.log(seconds.mean(-1))
    long_run = logs.mean((0, 2))
    undisturbed = (logs + disturbed).mean((0, 2))
    found = []
    for plan in plans(seconds, is_moderated):
        intervals = [pooled_rate(runs, plan.prior) for runs in plan.rows]
        bounds = numpy.log([(one.low, one.high) for one in intervals])
        inside = [(bounds[:, 0] <= truth) & (truth <= bounds[:, 1]) for truth in (long_run, undisturbed)]
        found.append((*inside, plan.told))
    return Covered(*(numpy.array([one[part] for one in found]) for part in range(3)))


def coverage_lines(count: int) -> Iterator[Line]:
    for name, noise in (
        ("plain", plain()),
        ("no noise between runs", plain(run_noise=0.0)),
        ("drift within runs", drifting),
        ("autocorrelation 0.3", plain(correlation=0.3)),
        ("autocorrelation 0.6", plain(correlation=0.6)),
    ):
        for runs, iterations in ((3, 5), (5, 5), (5, 20)):
            found = covered(noise, count, runs, iterations)
            yield Line(f"rate covered: {name}, {runs} runs x {iterations}", share(found.long_run), COVERED)
    for runs in (3, 5):
        alone = covered(plain(), count, runs, 5, is_moderated=False)
        yield Line(f"rate covered: plain, {runs} runs x 5, each row by itself", share(alone.long_run), COVERED)
        found = covered(unlike, count, runs, 5).long_run
        yield Line(f"rate covered: rows of 1 % among others of 4 %, {runs} runs", share(found[:, ::2]), TOLD_OR_COVERED)
        yield Line(f"rate covered: rows of 4 % among others of 1 %, {runs} runs", share(found[:, 1::2]), COVERED)


def disturbed_lines(count: int) -> Iterator[Line]:
    for name, noise in (
        ("all runs throttled from some iteration on, 15 %", throttled(1.0, 0.15)),
        ("half of the runs throttled, 15 %", throttled(0.5, 0.15)),
        ("one run in five 10 % slow", slowed(0.2, 1.1)),
        ("one run in ten 30 % slow", slowed(0.1, 1.3)),
    ):
        for runs in (3, 5):
            found = covered(noise, count, runs, 20)
            told = found.told
            yield Line(f"{name}, {runs} runs: long-run rate covered", share(found.long_run))
            yield Line(f"{name}, {runs} runs: long-run rate covered, or told as two modes", share(found.long_run | told))
            yield Line(
                f"{name}, {runs} runs: rate of undisturbed runs covered, or told", share(found.undisturbed | told)
            )
            yield Line(f"{name}, {runs} runs: told as two modes", share(told))
    for runs in (3, 5):
        told = covered(plain(), count, runs, 5).told
        yield Line(f"plain, {runs} runs: told as two modes", share(told), (0, 0.02))


def best_of(rows: Sequence[Sequence[RunSeconds]]) -> int:
    return max(range(len(rows)), key=lambda index: pooled_rate(rows[index]).value)


def alarm_lines(count: int) -> Iterator[Line]:
    for name, noise, is_moderated in (
        ("plain", plain(), True),
        ("one run in five 10 % slow", slowed(0.2, 1.1), True),
        ("rows of 1 % and of 4 %", unlike, True),
        ("plain, each row by itself", plain(), False),
    ):
        for runs in (3, 5):
            seconds, _ = noise(numpy.random.default_rng(SEED), (count, ROWS, runs, 5))
            alarms: dict[int, list[bool]] = {sides: [] for sides in (2, 3, 4, 6)}
            for plan in plans(seconds, is_moderated):
                for sides, found in alarms.items():
                    for start in range(0, ROWS - sides + 1, sides):
                        rows = plan.rows[start : start + sides]
                        best = best_of(rows)
                        results = [
                            compare(row, rows[best], prior=plan.prior, sides=sides)
                            for index, row in enumerate(rows)
                            if index != best
                        ]
                        found.append(any(one.verdict != "not distinguishable" for one in results))
            for sides, found in alarms.items():
                yield Line(f"alarm among {sides} equal rows: {name}, {runs} runs", share(found), (0, 0.05))


def power_lines(count: int) -> Iterator[Line]:
    """Row 0 is 5 % faster than the others of its group; the plan's other rows are in groups of their own."""
    for runs, iterations, pair_least, four_least in ((3, 20, None, None), (5, 5, None, None), (5, 20, 0.85, 0.75)):
        seconds, _ = plain()(numpy.random.default_rng(SEED), (count, ROWS, runs, iterations))
        seconds[:, 0] /= 1.05
        found: dict[str, list[bool]] = {"pair": [], "four": [], "all": [], "alone": [], "alone4": []}
        for plan in plans(seconds):
            first, *others = plan.rows[:4]
            pair = compare(others[0], first, prior=plan.prior)
            four = [compare(row, first, prior=plan.prior, sides=4).verdict == "slower" for row in others]
            found["pair"].append(pair.verdict == "slower")
            found["four"] += four
            found["all"].append(all(four))
            found["alone"].append(compare(others[0], first).verdict == "slower")
            found["alone4"] += [compare(row, first, sides=4).verdict == "slower" for row in others]
        what = f"{runs} runs x {iterations}"
        yield Line(f"5 % found: pair, {what}", share(found["pair"]), pair_least and (pair_least, 1.0))
        yield Line(f"5 % found: pair, {what}, each row by itself", share(found["alone"]))
        yield Line(f"5 % found: a row in a group of four, {what}", share(found["four"]), four_least and (four_least, 1.0))
        yield Line(f"5 % found: a row in a group of four, {what}, each row by itself", share(found["alone4"]))
        yield Line(f"5 % found: all three others of a group of four, {what}", share(found["all"]))


def steady_lines(count: int) -> Iterator[Line]:
    for correlation in (0.0, 0.3, 0.6):
        for iterations in (8, 20, 50):
            rng = numpy.random.default_rng(SEED)
            noise = numpy.exp(lasting(rng, (count, iterations), correlation, ITERATION_NOISE))
            what = f"autocorrelation {correlation:g}, {iterations} iterations"
            bounds = (0, 0.07) if iterations >= 20 else None
            yield Line(f"false drift: {what}", share(drifts(noise)), bounds)
            rates = [rate_interval(RunSeconds(1.0, tuple(seconds))) for seconds in noise.tolist()]
            truth = 1 / math.exp(ITERATION_NOISE**2 / 2)
            inside = [one.low is not None and one.high is not None and one.low <= truth <= one.high for one in rates]
            yield Line(f"run's rate covered: {what}", share(inside), COVERED if iterations >= 20 else None)
            rising = noise * numpy.linspace(1, 1.1, iterations)
            least = (0.8, 1.0) if correlation == 0 and iterations >= 20 else None
            yield Line(f"drift of 10 % found: {what}", share(drifts(rising)), least)
            step = noise * numpy.where(numpy.arange(iterations) >= iterations // 2, 1.1, 1.0)
            yield Line(f"step of 10 % in the middle found: {what}", share(drifts(step)))


def drifts(seconds: numpy.ndarray) -> list[bool]:
    return [steady_state(series).verdict == "drifting" for series in seconds.tolist()]


PARTS = (coverage_lines, disturbed_lines, alarm_lines, power_lines, steady_lines)


def text(lines: Sequence[Line], minutes: float) -> str:
    """The table with when and where it was made."""
    facts = host_facts()
    head = (
        f"Simulated by `make stats-check` on {date.today()} ({facts['cpu']['model']}, {minutes:.1f} minutes on one core; seed "
        f"{SEED}, plans of {ROWS} rows, {RUN_NOISE:.0%} between runs and {ITERATION_NOISE:.0%} between iterations)."
    )
    return "\n".join([head, "", "| what | % | bound | |", "|---|---:|---|---|", *(line.cells() for line in lines)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="file whose table is replaced, between its marks")
    parser.add_argument("--plans", type=int, default=PLANS)
    options = parser.parse_args()
    began, lines = time.monotonic(), []
    for part in PARTS:
        for line in part(options.plans):
            print(line.cells(), flush=True)
            lines.append(line)
    if options.write:
        before, _, rest = options.write.read_text(encoding="utf-8").partition(BEGIN)
        table = text(lines, (time.monotonic() - began) / 60)
        options.write.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    failed = [line.what for line in lines if not line.holds]
    print(f"{len(lines) - len(failed)} of {len(lines)} hold" + "".join(f"\nFAILS: {what}" for what in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
