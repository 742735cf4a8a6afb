"""What a study comes to, from its bundles: who is fastest at its best, what tuning gave, and what each knob gave."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from suite.stats.compare import Comparison
from suite.stats.intervals import pooled_rate
from suite.stats.rounds import InTurns, compare_in_turns, fastest, find_rounds
from suite.tune.bundles import in_turns
from suite.tune.knobs import changed
from suite.tune.study import CONFIRMED, SHARES, Answer, Confirmed, Gain, Place, Study, Trial, best_of

#: Runs that were measured again, by backend, row and the knob that is taken back.
_Rows = Mapping[tuple[str, str, str | None], InTurns]


def answered(folder: Path, study: Study) -> Study:
    """A study that has winners, with its answer. Raises DamagedBundle."""
    runs: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    for row in study.confirmed:
        runs[_key(row)] += row.runs
    rows = {key: in_turns(folder / CONFIRMED, names) for key, names in runs.items()}
    backends = [winner.backend for winner in study.winners]
    plain = {backend: rows.get((backend, "equal-config", None), InTurns((), ())) for backend in backends}
    best = {backend: rows.get((backend, "tuned", None), plain[backend]) for backend in backends}
    tuned, equal_config = _order(best), _order(plain)
    searched = [each.backend for each in study.question.searched]
    trials = {name: study.of(name) for name in dict.fromkeys((*searched, *backends))}
    answer = Answer(
        tuned=tuned,
        equal_config=equal_config,
        held_back=_held_back(tuned, equal_config),
        gains=tuple(_gain(backend, trials[backend], best[backend], plain[backend], len(best)) for backend in best),
        knobs=tuple(_knob_gains(study, rows)),
        curve={name: tuple(_best_by(each, share * study.budget) for share in SHARES) for name, each in trials.items()},
        failures={name: dict(Counter(trial.why for trial in each if trial.why)) for name, each in trials.items()},
        suspect=sum(trial.suspect for trial in study.trials),
    )
    return study.model_copy(update={"answer": answer})


def _key(row: Confirmed) -> tuple[str, str, str | None]:
    return row.backend, row.row, row.without


def _order(rows: Mapping[str, InTurns]) -> tuple[Place, ...]:
    """Fastest first; those of which no run succeeded last."""
    there = {backend: row for backend, row in rows.items() if row.runs}
    missing = [Place(backend=name, rate=None, against_best=None, is_best=False) for name in rows if name not in there]
    if not there:
        return tuple(missing)
    members = list(there.values())
    rounds = find_rounds([members], None)
    first = members[fastest(members, rounds)]
    places = [
        Place(
            backend=name,
            rate=pooled_rate(row.runs),
            against_best=None if row is first else compare_in_turns(row, first, sides=len(members), rounds=rounds),
            is_best=row is first,
        )
        for name, row in there.items()
    ]
    places.sort(key=lambda one: -one.against_best.ratio.value if one.against_best else -float("inf"))
    return (*places, *missing)


def _held_back(tuned: Sequence[Place], equal_config: Sequence[Place]) -> str | None:
    """The backend that is best when tuned, and behind another with equal settings."""
    behind = {one.backend for one in equal_config if one.against_best and one.against_best.verdict == "slower"}
    return next((place.backend for place in tuned if place.is_best and place.backend in behind), None)


def _compared(one: InTurns, other: InTurns, pairs: int) -> Comparison | None:
    if not one.runs or not other.runs:
        return None
    return compare_in_turns(one, other, rounds=find_rounds([[one, other]], None), pairs=pairs)


def _gain(backend: str, trials: Sequence[Trial], best: InTurns, plain: InTurns, pairs: int) -> Gain:
    own, winner = trials[0].choice, best_of(trials)
    before = best_of([trial for trial in trials if trial.choice == own])
    assert winner is not None and winner.rate is not None, "it is among the winners"
    turned = changed(winner.choice, own)
    return Gain(
        backend=backend,
        turned=turned,
        back={name: own[name] for name in turned},
        ratio=_compared(best, plain, pairs) if turned else None,
        trial=winner.rate / before.rate if turned and before and before.rate else None,
        rate=pooled_rate(best.runs) if best.runs else None,
        trial_rate=winner.rate,
    )


def _knob_gains(study: Study, rows: _Rows) -> list[Gain]:
    found = []
    for row in study.confirmed:
        if row.without is not None:
            alike = [one for one in study.confirmed if one.backend == row.backend and one.without is not None]
            tuned = next(one for one in study.confirmed if (one.backend, one.row) == (row.backend, "tuned"))
            turned, back = ({row.without: one.choice[row.without]} for one in (tuned, row))
            ratio = _compared(rows[_key(tuned)], rows[_key(row)], len(alike))
            found.append(Gain(backend=row.backend, turned=turned, back=back, ratio=ratio))
    return found


def _best_by(trials: Sequence[Trial], device_seconds: float) -> float | None:
    """The best rate of trials of any length that had ended when so much was spent."""
    best, spent = None, 0.0
    for trial in trials:
        spent += trial.device_seconds
        if spent > device_seconds:
            break
        if trial.outcome == "ok" and trial.rate is not None:
            best = max(best or 0.0, trial.rate)
    return best
