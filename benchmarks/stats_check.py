"""Do intervals, verdicts and alarms keep what they promise? Simulated with the suite's own functions, seeded.

``python -m benchmarks.stats_check [--write docs/results/stats-check.md]`` prints a table, a line for each promise, and
exits 1 where a figure leaves its bounds. ``--write`` puts the table between the marks in that file.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy

from benchmarks import iteration_turns, turns_check
from benchmarks.stopping import difference_figures, precision_figures
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
Bounds = tuple[float, float]
COVERED: Bounds = (0.93, 0.97)
AT_LEAST_COVERED: Bounds = (0.93, 1.0)
ALARMS: Bounds = (0.0, 0.05)
FALSE_DRIFTS: Bounds = (0.0, 0.07)
BEGIN, END = "<!-- begin: make stats-check -->", "<!-- end: make stats-check -->"

Generator = numpy.random.Generator
#: (plans, rows, runs, iterations) -> seconds of iterations, and the part of each run's log time that disturbed it
Noise = Callable[[Generator, tuple[int, int, int, int]], tuple[numpy.ndarray, numpy.ndarray]]


class Line(NamedTuple):
    """A simulated share, in a row and a column of a table, with the bounds that it has to keep; none: shown only."""

    what: str
    column: str
    share: float
    bounds: Bounds | None = None

    @property
    def holds(self) -> bool:
        return self.bounds is None or self.bounds[0] <= self.share <= self.bounds[1]

    @property
    def cell(self) -> str:
        """In per cent: in brackets what has no bounds, marked what leaves them."""
        value = f"{100 * self.share:.1f}"
        return f"({value})" if self.bounds is None else value if self.holds else f"**{value} FAILS**"


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
            found = covered(noise, count, runs, iterations).long_run
            yield Line(name, f"{runs} runs x {iterations}", share(found), COVERED)
    for runs in (3, 5):
        column = f"{runs} runs x 5"
        alone = covered(plain(), count, runs, 5, is_moderated=False).long_run
        yield Line("plain, each row by itself", column, share(alone), COVERED)
        found = covered(unlike, count, runs, 5).long_run
        yield Line("noisy rows (4 %) among calm ones (1 %)", column, share(found[:, 1::2]), COVERED)
        yield Line("calm rows (1 %) among noisy ones (4 %)", column, share(found[:, ::2]), AT_LEAST_COVERED)


def disturbed_lines(count: int) -> Iterator[Line]:
    for name, noise, bounds in (
        ("throttled from some iteration on, 15 %, all runs", throttled(1.0, 0.15), COVERED),
        ("throttled from some iteration on, 15 %, half of the runs", throttled(0.5, 0.15), COVERED),
        ("one run in five 10 % slow", slowed(0.2, 1.1), None),
        ("one run in ten 30 % slow", slowed(0.1, 1.3), None),
    ):
        for runs in (3, 5):
            found, column = covered(noise, count, runs, 20), f"{runs} runs x 20"
            yield Line(f"{name}: long-run rate covered", column, share(found.long_run), bounds)
            if bounds is None:
                yield Line(f"{name}: same, or told as two modes", column, share(found.long_run | found.told))
                told_or = share(found.undisturbed | found.told)
                yield Line(f"{name}: rate of other runs covered, or told", column, told_or, AT_LEAST_COVERED)
                yield Line(f"{name}: told", column, share(found.told))
    for runs in (3, 5):
        told = covered(plain(), count, runs, 20).told
        yield Line("plain: told as two modes", f"{runs} runs x 20", share(told), (0, 0.02))


def best_of(rows: Sequence[Sequence[RunSeconds]]) -> int:
    return max(range(len(rows)), key=lambda index: pooled_rate(rows[index]).value)


def has_alarm(rows: Sequence[Sequence[RunSeconds]], prior: Prior | None) -> bool:
    """Whether the ranking tells a difference between the best of these rows and another."""
    best = best_of(rows)
    others = [row for index, row in enumerate(rows) if index != best]
    results = (compare(row, rows[best], prior=prior, sides=len(rows)) for row in others)
    return any(result.verdict != "not distinguishable" for result in results)


def alarm_lines(count: int) -> Iterator[Line]:
    for name, noise, is_moderated in (
        ("plain", plain(), True),
        ("autocorrelation 0.6", plain(correlation=0.6), True),
        ("one run in five 10 % slow", slowed(0.2, 1.1), True),
        ("one run in ten 30 % slow", slowed(0.1, 1.3), True),
        ("every second row of 4 % noise, the others 1 %", unlike, True),
        ("plain, each row by itself", plain(), False),
    ):
        for runs in (3, 5):
            seconds, _ = noise(numpy.random.default_rng(SEED), (count, ROWS, runs, 5))
            alarms: dict[int, list[bool]] = {sides: [] for sides in (2, 3, 4, 6)}
            for plan in plans(seconds, is_moderated):
                for sides, found in alarms.items():
                    starts = range(0, ROWS - sides + 1, sides)
                    found += [has_alarm(plan.rows[start : start + sides], plan.prior) for start in starts]
            for sides, found in alarms.items():
                yield Line(f"{name}, {runs} runs", f"{sides} rows", share(found), ALARMS)


def power_lines(count: int) -> Iterator[Line]:
    """Row 0 is 5 % faster than the others of its group; the plan's other rows are in groups of their own."""
    for runs, iterations, spread, is_bound in ((3, 20, 0.02, False), (5, 5, 0.02, False), (5, 20, 0.02, True)):
        seconds, _ = plain(spread)(numpy.random.default_rng(SEED), (count, ROWS, runs, iterations))
        seconds[:, 0] /= 1.05
        found: dict[str, list[bool]] = {}
        for plan in plans(seconds):
            first, *others = plan.rows[:4]
            for told, prior in (("", plan.prior), (", each row by itself", None)):
                pair = compare(others[0], first, prior=prior).verdict == "slower"
                four = [compare(row, first, prior=prior, sides=4).verdict == "slower" for row in others]
                found.setdefault(f"pair{told}", []).append(pair)
                found.setdefault(f"one row of a group of four{told}", []).extend(four)
                found.setdefault(f"all three rows of a group of four{told}", []).append(all(four))
        bounds = {"pair": (0.85, 1.0), "one row of a group of four": (0.75, 1.0)} if is_bound else {}
        for what, values in found.items():
            yield Line(what, f"{runs} runs x {iterations}", share(values), bounds.get(what))


def steady_lines(count: int) -> Iterator[Line]:
    for correlation in (0.0, 0.3, 0.6):
        for iterations in (5, 10, 20, 50):
            rng = numpy.random.default_rng(SEED)
            noise = numpy.exp(lasting(rng, (4 * count, iterations), correlation, ITERATION_NOISE))
            is_bound, column, so = iterations >= 20, f"{iterations} iterations", f", autocorrelation {correlation:g}"
            yield Line(f"false drift{so}", column, share(drifts(noise)), FALSE_DRIFTS if is_bound else None)
            rates = [rate_interval(RunSeconds(1.0, tuple(seconds))) for seconds in noise.tolist()]
            truth = 1 / math.exp(ITERATION_NOISE**2 / 2)
            inside = [one.low is not None and one.high is not None and one.low <= truth <= one.high for one in rates]
            yield Line(f"rate of the run covered{so}", column, share(inside), COVERED if is_bound else None)
            rising = noise[:count] * numpy.linspace(1, 1.1, iterations)
            yield Line(f"drift of 10 % found{so}", column, share(drifts(rising)))
            step = noise[:count] * numpy.where(numpy.arange(iterations) >= iterations // 2, 1.1, 1.0)
            yield Line(f"step of 10 % in the middle found{so}", column, share(drifts(step)))


def drifts(seconds: numpy.ndarray) -> list[bool]:
    return [steady_state(series).verdict == "drifting" for series in seconds.tolist()]


PARTS: dict[str, Callable[[int], Iterator[Line]]] = {
    "95 % interval of a row's rate: how often it holds it": coverage_lines,
    "The same where runs are disturbed": disturbed_lines,
    "Equal rows in a group: how often the ranking tells a difference": alarm_lines,
    "A row 5 % faster than the others: how often it is told": power_lines,
    "Rows that took turns": lambda count: (Line(*told) for told in turns_check.figures(max(count // 5, 15))),
    "Rows in turns by iteration": lambda count: (Line(*told) for told in iteration_turns.figures(max(count // 5, 15))),
    "Rows that --until stopped": lambda count: (Line(*told[:4]) for told in precision_figures(count // 10)),
    "Rows that --difference stopped": lambda count: (
        Line(*told[:4]) for told in difference_figures(max(count // 10, 6))
    ),
    "Within one run": steady_lines,
}


def table(title: str, lines: Sequence[Line]) -> str:
    """Markdown: the figures of one row side by side, and its bounds."""
    columns = list(dict.fromkeys(line.column for line in lines))
    rows: dict[str, dict[str, Line]] = {}
    for line in lines:
        rows.setdefault(line.what, {})[line.column] = line
    body = []
    for what, cells in rows.items():
        bounds = next((line.bounds for line in cells.values() if line.bounds), None)
        shown = [cells[column].cell if column in cells else "" for column in columns]
        body.append(f"| {what} | {' | '.join(shown)} | {_limits(bounds)} |")
    head = f"| {title} | {' | '.join(columns)} | bound |\n|---|{'---:|' * len(columns)}---|"
    return "\n".join([head, *body])


def _limits(bounds: Bounds | None) -> str:
    if bounds is None:
        return ""
    low, high = (f"{100 * bound:g}" for bound in bounds)
    return f"at most {high}" if bounds[0] == 0 else f"at least {low}" if bounds[1] == 1 else f"{low} to {high}"


def _part(title: str, plans: int) -> list[Line]:
    return list(PARTS[title](plans))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="file whose tables are replaced, between its marks")
    parser.add_argument("--plans", type=int, default=PLANS)
    options = parser.parse_args()
    began, tables, lines = time.monotonic(), [], []
    with ProcessPoolExecutor() as cores:  # each part draws from a generator of its own, so its figures are the same
        for title, found in zip(PARTS, cores.map(_part, PARTS, repeat(options.plans)), strict=True):
            tables.append(table(title, found))
            print(f"{tables[-1]}\n", flush=True)
            lines += found
    cpu, minutes = host_facts()["cpu"]["model"], (time.monotonic() - began) / 60
    head = (
        f"Simulated on {date.today()} ({cpu}, {minutes:.1f} minutes on {os.cpu_count()} threads): seed {SEED}, "
        f"{options.plans:,} plans of {ROWS} rows (a fifth of them for rows that took turns, a tenth for rows that a "
        f"rule stopped), {RUN_NOISE:.0%} noise between runs and {ITERATION_NOISE:.0%} between iterations. In "
        "per cent of the cases; in brackets what has no bound."
    )
    if options.write:
        before, _, rest = options.write.read_text(encoding="utf-8").partition(BEGIN)
        page = "\n\n".join([head, *tables])
        options.write.write_text(f"{before}{BEGIN}\n{page}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    failed = [f"{line.what}, {line.column}: {100 * line.share:.1f} %" for line in lines if not line.holds]
    print(f"{head}\n{sum(line.bounds is not None for line in lines) - len(failed)} figures within their bounds")
    print("\n".join(f"outside its bounds: {one}" for one in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
