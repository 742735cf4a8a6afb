"""What the planner expects of the rows of a space: which to try first, and whether one that was not tried can win."""

from collections.abc import Collection, Sequence

from suite.bundle.record import Record
from suite.spec.manifest import Manifest
from suite.tune.knobs import Choice
from suite.tune.space import Space
from suite.tune.study import Trial, best_of

#: A row that is faster by no more than that is not worth finding.
WORTH_FINDING = 0.02


class Expectation:
    """Of one backend, on the machine that its first run saw."""

    def __init__(self, space: Space, record: Record) -> None:
        self._candidates = space.candidates
        self._rates = [_rate(candidate.manifest, record) for candidate in space.candidates]
        self._index = {repr(candidate.choice): index for index, candidate in enumerate(space.candidates)}

    def fastest(self, most: int) -> list[int]:
        """Candidates that are expected to be fastest, the first of the space left out; none where nothing is known."""
        known = [(rate, -index) for index, rate in enumerate(self._rates) if index and rate is not None]
        return [-place for _, place in sorted(known, reverse=True)[:most]]

    def place(self, choice: Choice) -> int | None:
        """Of the candidate of these values in the order of all, 1 for the fastest, before those expected to be as fast;
        null where nothing is known."""
        own = self._rates[self._index[repr(dict(choice))]]
        return None if own is None else 1 + sum(rate is not None and rate > own for rate in self._rates)

    def none_can_win(self, trials: Sequence[Trial], untried: Collection[int]) -> bool:
        """Whether no untried row is faster than the best by more than ``WORTH_FINDING``, if none beats its prediction
        by more than the best of the trials did. Never before each value of each knob was tried."""
        best = best_of(trials)
        measured = [trial for trial in trials if trial.outcome == "ok" and trial.rate]
        for name in self._candidates[0].choice:
            if {trial.choice[name] for trial in measured} != {each.choice[name] for each in self._candidates}:
                return False
        expected = [self._rates[self._index[repr(trial.choice)]] for trial in measured]
        rates = [self._rates[candidate] for candidate in untried]
        if best is None or best.rate is None or None in expected or None in rates:
            return False
        luck = max(trial.rate / rate for trial, rate in zip(measured, expected, strict=True) if trial.rate and rate)
        return all(luck * rate <= (1 + WORTH_FINDING) * best.rate for rate in rates if rate)


def _rate(manifest: Manifest, record: Record) -> float | None:
    """Samples per second that the planner expects; None where it knows nothing of such a run, as of any on a CPU."""
    from suite.planner.predict_manifest import device_of, predict_manifest

    predicted = predict_manifest(manifest, device_of(record))
    return None if predicted is None else float(predicted["samples_per_second"])
