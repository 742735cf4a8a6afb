"""What change points promise, simulated: `python -m benchmarks.changes_check`; docs/results/checks.md has figures."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy

from suite.stats.changes import find_changes

SEED = 11
HISTORIES = 2000
LENGTHS = (8, 12, 20, 50)
#: In standard deviations of a point.
STEPS = (2.0, 3.0, 4.0, 6.0)
Generator = numpy.random.Generator
Noise = Callable[[Generator, int], numpy.ndarray]


def normal(rng: Generator, count: int) -> numpy.ndarray:
    return rng.normal(size=count)


def heavy(rng: Generator, count: int) -> numpy.ndarray:
    """Student's t with 3 degrees of freedom, of unit variance."""
    return rng.standard_t(3, size=count) / numpy.sqrt(3)


def with_outliers(rng: Generator, count: int) -> numpy.ndarray:
    """One value in twenty is six deviations slower."""
    return rng.normal(size=count) - 6 * (rng.random(count) < 0.05)


def correlated(rng: Generator, count: int) -> numpy.ndarray:
    """Each value keeps 0.3 of the one before."""
    values = rng.normal(size=count)
    for place in range(1, count):
        values[place] = 0.3 * values[place - 1] + numpy.sqrt(1 - 0.09) * values[place]
    return values


NOISES: dict[str, Noise] = {
    "normal": normal,
    "heavy tails (t, 3 degrees)": heavy,
    "one in twenty far slower": with_outliers,
    "correlated (0.3)": correlated,
}


class Found(NamedTuple):
    """Shares of histories: with the change, its place within the interval, its size within the interval; and the mean
    length of the interval of its place, in points."""

    power: float
    place: float
    size: float
    length: float


def alarms(noise: Noise, count: int, histories: int = HISTORIES) -> float:
    rng = numpy.random.default_rng(SEED)
    return sum(bool(find_changes(list(noise(rng, count))).changes) for _ in range(histories)) / histories


def power(noise: Noise, before: int, after: int, step: float, histories: int = HISTORIES) -> Found:
    """Of a step down after so many points; shares of places and sizes are of the histories that show one change."""
    rng = numpy.random.default_rng(SEED)
    found = place = size = length = 0
    for _ in range(histories):
        values = noise(rng, before + after)
        values[before:] -= step
        changes = find_changes(list(values)).changes
        if len(changes) != 1:
            continue
        (change,) = changes
        low, high = change.interval()
        found += 1
        place += change.first <= before <= change.last
        size += low <= -step <= high
        length += change.last - change.first + 1
    shown = max(found, 1)
    return Found(found / histories, place / shown, size / shown, length / shown)


def main() -> None:
    write = sys.stdout.write
    write(
        "| noise | " + " | ".join(f"{count} points" for count in LENGTHS) + " |\n|---|" + "---:|" * len(LENGTHS) + "\n"
    )
    for name, noise in NOISES.items():
        write(f"| {name} | " + " | ".join(f"{100 * alarms(noise, count):.1f} %" for count in LENGTHS) + " |\n")
    write(
        "\n| step | points before + after | found | place held | size held | places |\n|---|---|---:|---:|---:|---:|\n"
    )
    for before, after in ((10, 2), (10, 5), (20, 20)):
        for step in STEPS:
            found = power(normal, before, after, step)
            shares = " | ".join(f"{100 * share:.0f} %" for share in found[:3])
            write(f"| {step:g} | {before} + {after} | {shares} | {found.length:.1f} |\n")


if __name__ == "__main__":
    main()
