"""What a study comes to, from its bundles: who is fastest at its best, what tuning gave, and what each knob gave."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.stats.compare import Comparison
from suite.stats.intervals import Interval, pooled_rate
from suite.stats.rounds import InTurns, compare_in_turns, fastest, find_rounds
from suite.tune.bundles import in_turns
from suite.tune.knobs import Value, changed
from suite.tune.study import CONFIRMED, Confirmed, Study, Trial, best_of

#: Of the budget, where the curve of the best so far is told.
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Place:
    """A backend in an order. ``ratio``: of its rate to the best's; null for the best, and where nothing tells."""

    backend: str
    rate: Interval | None
    against_best: Comparison | None
    is_best: bool


@dataclass(frozen=True)
class Gain:
    """What ``turned`` knobs gave a backend over ``back``: all of its winner's over its own row, or one of them over the
    winner without it. ``ratio``: of the rates when both were measured again; ``trial``: of the trials with most
    iterations, null where there are none of both; ``rate`` of the winner, and ``trial_rate``."""

    backend: str
    turned: dict[str, Value]
    back: dict[str, Value]
    ratio: Comparison | None
    trial: float | None = None
    rate: Interval | None = None
    trial_rate: float | None = None


@dataclass(frozen=True)
class Result:
    """``curve``: backend -> best rate in samples/s when each of ``SHARES`` of the budget was spent, null before the
    first; ``failures``: backend -> how often for which reason."""

    study: Study
    tuned: tuple[Place, ...]
    equal_config: tuple[Place, ...]
    gains: tuple[Gain, ...]
    knobs: tuple[Gain, ...]
    curve: dict[str, tuple[float | None, ...]]
    failures: dict[str, dict[str, int]]
    suspect: int

    @property
    def held_back(self) -> str | None:
        """The backend that the equal-config order puts behind another that it is not behind at its best."""
        for place in self.tuned:
            before = next((one for one in self.equal_config if one.backend == place.backend), None)
            if place.is_best and before is not None and not before.is_best and _is_behind(before):
                return place.backend
        return None


def _is_behind(place: Place) -> bool:
    return place.against_best is not None and place.against_best.verdict == "slower"


def result_of(folder: Path, study: Study) -> Result:
    """Raises DamagedBundle."""
    runs: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    for row in study.confirmed:
        runs[_key(row)] += row.runs
    rows = {key: in_turns(folder / CONFIRMED, names) for key, names in runs.items()}
    backends = [winner.backend for winner in study.winners]
    plain = {backend: rows.get((backend, "equal-config", None), InTurns((), ())) for backend in backends}
    best = {backend: rows.get((backend, "tuned", None), plain[backend]) for backend in backends}
    return Result(
        study=study,
        tuned=_order(best),
        equal_config=_order(plain),
        gains=tuple(_gain(study, backend, best[backend], plain[backend], len(backends)) for backend in backends),
        knobs=tuple(_knob_gains(study, rows)),
        curve={each.backend: _curve(study, each.backend) for each in study.question.searched},
        failures={
            each.backend: dict(Counter(trial.why for trial in study.of(each.backend) if trial.why))
            for each in study.question.searched
        },
        suspect=sum(trial.suspect for trial in study.trials),
    )


def _key(row: Confirmed) -> tuple[str, str, str | None]:
    return row.backend, row.row, row.without


def _order(rows: dict[str, InTurns]) -> tuple[Place, ...]:
    """Fastest first; those of which no run succeeded last."""
    there = {backend: row for backend, row in rows.items() if row.runs}
    missing = tuple(Place(backend, None, None, False) for backend in rows if backend not in there)
    if not there:
        return missing
    names, members = list(there), list(there.values())
    rounds = find_rounds([members], None)
    first = fastest(members, rounds)
    places = [
        Place(
            name,
            pooled_rate(row.runs),
            None if index == first else compare_in_turns(row, members[first], sides=len(members), rounds=rounds),
            index == first,
        )
        for index, (name, row) in enumerate(zip(names, members, strict=True))
    ]
    ordered = sorted(places, key=lambda one: -one.against_best.ratio.value if one.against_best else -float("inf"))
    return (*ordered, *missing)


def _compared(one: InTurns, other: InTurns, pairs: int) -> Comparison | None:
    if not one.runs or not other.runs:
        return None
    return compare_in_turns(one, other, rounds=find_rounds([[one, other]], None), pairs=pairs)


def _gain(study: Study, backend: str, best: InTurns, plain: InTurns, pairs: int) -> Gain:
    trials = study.of(backend)
    own, winner = trials[0].choice, best_of(trials)
    before = best_of([trial for trial in trials if trial.choice == own])
    assert winner is not None and winner.rate is not None, "it is among the winners"
    turned = changed(winner.choice, own)
    rate = pooled_rate(best.runs) if best.runs else None
    if not turned:
        return Gain(backend, {}, {}, None, None, rate, winner.rate)
    trial = winner.rate / before.rate if before is not None and before.rate else None
    back = {name: own[name] for name in turned}
    return Gain(backend, turned, back, _compared(best, plain, pairs), trial, rate, winner.rate)


def _knob_gains(study: Study, rows: dict[tuple[str, str, str | None], InTurns]) -> list[Gain]:
    found = []
    for row in study.confirmed:
        if row.without is not None:
            alike = [one for one in study.confirmed if one.backend == row.backend and one.without is not None]
            tuned = next(one for one in study.confirmed if (one.backend, one.row) == (row.backend, "tuned"))
            turned, back = ({row.without: one.choice[row.without]} for one in (tuned, row))
            found.append(Gain(row.backend, turned, back, _compared(rows[_key(tuned)], rows[_key(row)], len(alike))))
    return found


def _curve(study: Study, backend: str) -> tuple[float | None, ...]:
    """The best rate by then of the trials of any rung."""
    return tuple(_best_by(study.of(backend), share * study.budget) for share in SHARES)


def _best_by(trials: Sequence[Trial], device_seconds: float) -> float | None:
    best, spent = None, 0.0
    for trial in trials:
        spent += trial.device_seconds
        if spent > device_seconds:
            break
        if trial.outcome == "ok" and trial.rate is not None:
            best = max(best or 0.0, trial.rate)
    return best
