"""Runs over time: the points of each series, where its level changed, and what was changed there."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

from suite.report.site.runs import UNKNOWN_MACHINE, RunFacts
from suite.spec.base import digest
from suite.stats.changes import History, find_changes
from suite.stats.intervals import Interval, RunSeconds, log_rates, pooled_rate
from suite.stats.moderated import LEAST_SPREAD, mean_of

#: Fewer degrees of freedom than this do not tell how far runs of one point spread.
_FEWEST_DEGREES = 3
#: A 95 % interval of normal noise is so many standard errors wide.
_WIDTH = 2 * 1.959964
_ID_CHARACTERS = 12
_MOST_VERSIONS = 12

Direction = Literal["slower", "faster"]


@dataclass(frozen=True)
class Point:
    """The runs of a series in one folder with the same ``versions``, the id of ``stack``. ``measured``: without suspect
    ones where there are others; ``lost``: how many have no rate, by state, with the first reason each."""

    id: str
    folder: str
    started: float | None
    versions: str
    stack: Mapping[str, str]
    run_ids: tuple[str, ...]
    digests: tuple[str, ...]
    measured: tuple[RunSeconds, ...]
    own: Interval | None
    is_suspect: bool
    lost: tuple[tuple[str, int, str], ...]
    phases: tuple[tuple[str, float], ...]

    @cached_property
    def rate(self) -> Interval | None:
        """Samples per second over its runs; with one run the interval that its own iterations give."""
        if not self.measured:
            return None
        return pooled_rate(self.measured) if len(self.measured) > 1 else self.own


@dataclass(frozen=True)
class LevelChange:
    """A change of a series: it ``began`` with the point ``after``, by its place among those with a rate; ``anchor``
    names it on a page; the true place is one of ``first`` to ``last``. ``ratio``: rate after over before.
    ``versions``: name, before and after. ``phases``: name, seconds per iteration before and after, and the ratio of
    rates, above 1 is faster."""

    after: int
    anchor: str
    began: float | None
    first: int
    last: int
    ratio: Interval
    probability: float
    versions: tuple[tuple[str, str, str], ...]
    phases: tuple[tuple[str, float, float, float | None], ...]

    @property
    def direction(self) -> Direction:
        return "slower" if self.ratio.value < 1 else "faster"


@dataclass(frozen=True)
class Series:
    """One configuration on one kind of machine, over time. ``lost``: points without a rate, or of suspect runs alone,
    which no level is made of. ``levels``: samples per second between changes."""

    id: str
    facts: Mapping[str, Any]
    points: tuple[Point, ...]
    lost: tuple[Point, ...]
    levels: tuple[float, ...]
    changes: tuple[LevelChange, ...]
    noise: float | None

    @property
    def name(self) -> str:
        facts = self.facts
        ranks = f"{facts['ranks']} rank{'s' * (facts['ranks'] != 1)}"
        return f"{facts['backend']} {facts['size']}, {ranks}, {facts['layout']}"

    @property
    def runs(self) -> int:
        return sum(len(point.run_ids) for point in (*self.points, *self.lost))

    @property
    def without_rate(self) -> int:
        lost = [one for point in (*self.points, *self.lost) for one in point.lost]
        return sum(count for state, count, _ in lost if state != "suspect")

    @property
    def latest(self) -> Point | None:
        return self.points[-1] if self.points else None

    def as_json(self) -> dict[str, Any]:
        def at(place: int) -> dict[str, Any]:
            point = self.points[place]
            return {"folder": point.folder, "started": point.started, "runs": list(point.run_ids)}

        return {
            "id": self.id,
            "name": self.name,
            "facts": dict(self.facts),
            "points": len(self.points),
            "runs": self.runs,
            "noise": self.noise,
            "changes": [
                {
                    "direction": change.direction,
                    "ratio": {"value": change.ratio.value, "low": change.ratio.low, "high": change.ratio.high},
                    "probability": change.probability,
                    "begins": at(change.after),
                    "earliest": at(change.first),
                    "latest": at(change.last),
                    "versions": [list(one) for one in change.versions],
                }
                for change in self.changes
            ],
        }


def histories(every: Sequence[RunFacts], names: Mapping[Path, str]) -> tuple[Series, ...]:
    """By machine, then size, then the rest of the name. ``names``: what pages call each folder that was read."""
    facts = {run.series: run.facts for run in every}
    by_series: dict[str, list[RunFacts]] = defaultdict(list)
    for run, series in zip(every, _series_of(every, facts), strict=True):
        by_series[series].append(run)
    made = [_series(name, facts[name], runs, names) for name, runs in sorted(by_series.items())]
    first = ("machine", "parameters", "size", "ranks")
    return tuple(sorted(made, key=lambda one: (*(one.facts[name] for name in first), one.name, one.id)))


def _series_of(every: Sequence[RunFacts], facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The series of each run. One that died before it told its machine or its counts belongs to the only series with
    rates that is like it in all else, where there is one such."""
    like = {name: _without_outcome(one) for name, one in facts.items()}
    known: dict[tuple, set[str]] = defaultdict(set)
    for run in every:
        if run.counted:
            known[like[run.series]].add(run.series)
    assigned = []
    for run in every:
        candidates = known[like[run.series]]
        only = next(iter(candidates)) if len(candidates) == 1 else run.series
        is_lost = not run.counted and run.facts["machine"] in (UNKNOWN_MACHINE, facts[only]["machine"])
        assigned.append(only if is_lost else run.series)
    return assigned


def _without_outcome(facts: Mapping[str, Any]) -> tuple:
    """What is known of a run before it has told anything."""
    shown_apart = ("machine", "clock", "launcher", *(("work",) if facts["kind"] == "trainer" else ()))
    return tuple((name, value) for name, value in sorted(facts.items()) if name not in shown_apart)


def _label(names: Mapping[Path, str], path: Path) -> str:
    """Of a bundle's folder: below the last part of what was named, so that no page tells where that is."""
    for folder, name in names.items():
        if path.is_relative_to(folder):
            return "/".join([name, *path.relative_to(folder).parts[:-1]])
    return path.parent.as_posix()


def _series(name: str, facts: Mapping[str, Any], runs: Sequence[RunFacts], names: Mapping[Path, str]) -> Series:
    groups: dict[tuple[str, str], list[RunFacts]] = defaultdict(list)
    for run in runs:
        groups[_label(names, run.trace.path), run.versions].append(run)
    all_points = sorted(
        (_point(name, folder, group) for (folder, _), group in groups.items()),
        key=lambda point: (point.started or 0.0, point.folder, point.id),
    )
    points = [point for point in all_points if point.measured and not point.is_suspect]
    history = _changes(points)
    return Series(
        id=name,
        facts=facts,
        points=tuple(points),
        lost=tuple(point for point in all_points if point.is_suspect or not point.measured),
        levels=tuple(math.exp(level) for level in history.levels),
        changes=tuple(_level_change(points, history, number) for number in range(len(history.changes))),
        noise=history.noise,
    )


def _point(series: str, folder: str, runs: Sequence[RunFacts]) -> Point:
    with_rate = [(run, rate) for run in runs if (rate := run.measured()) is not None]
    quiet = [(run, rate) for run, rate in with_rate if run.state == "ok"]
    used = quiet or with_rate
    lost: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        if run.state not in ("ok", "suspect") or (quiet and run.state == "suspect"):
            lost[run.state].append(run.note)
    (one, rate) = used[0] if used else (None, None)
    names = [name for name in (used[0][0].phases if used else ()) if all(name in run.phases for run, _ in used)]
    return Point(
        id=digest([series, folder, runs[0].versions, min(run.trace.run_id for run in runs)])[:_ID_CHARACTERS],
        folder=folder,
        started=min((run.trace.started for run in runs if run.trace.started is not None), default=None),
        versions=runs[0].versions,
        stack=runs[0].stack,
        run_ids=tuple(run.trace.run_id for run in runs),
        digests=tuple(run.trace.digest or "" for run in runs),
        measured=tuple(rate for _, rate in used),
        own=Interval(rate.rate, one.low, one.high) if one is not None and rate is not None else None,
        is_suspect=bool(with_rate) and not quiet,
        lost=tuple((state, len(notes), notes[0]) for state, notes in sorted(lost.items())),
        phases=tuple((name, mean_of([run.phases[name] for run, _ in used])) for name in names),
    )


def _changes(points: Sequence[Point]) -> History:
    """Of the points' mean log rates. Noise: what a point has beside its runs (the machine on that day), the same for
    all, and the spread of its runs over their number."""
    logs = [log_rates(point.measured) for point in points]
    means = [mean_of(each) for each in logs]
    if not means:
        return find_changes(means)
    of_runs = _run_variance(points, logs)
    own = [max(of_runs, LEAST_SPREAD**2) / len(each) for each in logs]
    distances = [abs(later - earlier) for earlier, later in pairwise(means)]
    whole = (median(distances) / 0.9538726) ** 2 if distances else 0.0  # of a difference of two equal normal values
    beside = max(0.0, whole - mean_of(own))
    weights = [1 / (beside + variance) for variance in own]
    # what the runs' own spread makes of a point of mean weight, whatever the points say
    least = math.sqrt(mean_of([weight * variance for weight, variance in zip(weights, own, strict=True)]))
    return find_changes(means, weights, least / math.sqrt(mean_of(weights)))


def _run_variance(points: Sequence[Point], logs: Sequence[Sequence[float]]) -> float:
    """Of one run's log rate within a point: pooled over points with repeats, else by the runs' own intervals."""
    degrees = sum(len(each) - 1 for each in logs)
    if degrees >= _FEWEST_DEGREES:
        return math.fsum(math.fsum((log - mean_of(each)) ** 2 for log in each) for each in logs) / degrees
    bounds = [(point.own.low, point.own.high) for point in points if point.own is not None]
    widths = [math.log(high / low) / _WIDTH for low, high in bounds if low is not None and high is not None]
    return median(widths) ** 2 if widths else 0.0


def _level_change(points: Sequence[Point], history: History, number: int) -> LevelChange:
    change = history.changes[number]
    edges = [0, *(one.place for one in history.changes), len(points)]
    low, high = change.interval()
    ratio = Interval(*(math.exp(min(max(log, -700.0), 700.0)) for log in (change.difference, low, high)))
    before, after = points[edges[number] : change.place], points[change.place : edges[number + 2]]
    return LevelChange(
        after=change.place,
        anchor=f"change-{points[change.place].id}",
        began=points[change.place].started,
        first=change.first,
        last=change.last,
        ratio=ratio,
        probability=change.probability,
        versions=changed_versions(points[change.first - 1], points[change.last]),
        phases=tuple(_phase_changes(before, after)),
    )


def changed_versions(one: Point, other: Point) -> tuple[tuple[str, str, str], ...]:
    before, after = one.stack, other.stack
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return tuple((name, before.get(name, "-"), after.get(name, "-")) for name in names[:_MOST_VERSIONS])


def _phase_changes(before: Sequence[Point], after: Sequence[Point]) -> Iterator[tuple[str, float, float, float | None]]:
    """Mean over the points of both levels, where all of them tell the phase."""
    sides = [[dict(point.phases) for point in side] for side in (before, after)]
    for name in sides[0][0]:
        if all(name in one for side in sides for one in side):
            first, second = (mean_of([one[name] for one in side]) for side in sides)
            yield name, first, second, first / second if first > 0 and second > 0 else None
