"""The search of one backend: Optuna says which row is tried next and whether a trial goes on to more iterations.

Everything it says follows from its seed and what it was told, so that a study that is told the trials of its bundles
again goes on where it stood.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from suite.spec.base import UsageError
from suite.tune.knobs import Value

if TYPE_CHECKING:
    from optuna.trial import Trial

#: Of the trials that got to a rung one in so many goes on to the next, which has so many times its iterations.
REDUCTION = 3
#: Rows that the planner expects to be fastest, which are tried next after a stack's own.
FROM_PLANNER = 3
#: Trials before TPE models anything; suggestions of rows that were tried or cannot be run, after which one is drawn.
_STARTUP_TRIALS, _MOST_MISSES = 6, 10


class Step(NamedTuple):
    """A run of the search: which candidate, with the iterations of which rung."""

    candidate: int
    rung: int


def optuna_version() -> str:
    """Raises UsageError where it is not installed."""
    try:
        from optuna import __version__
    except ImportError as error:
        raise UsageError(
            "suite tune searches with Optuna, which is not installed here: pip install 'rlhf-suite[tune]'"
        ) from error
    return str(__version__)


class Searcher:
    """One use: ``next`` and ``tell`` in turn, until ``next`` has nothing untried.

    TPE, because it takes mixed discrete knobs, works from few trials and uses what pruned ones told; successive
    halving, because a layout that is slow is slow from its first iterations. The first candidate is tried first.
    """

    def __init__(
        self,
        knobs: dict[str, tuple[Value, ...]],
        settings: dict[tuple[Value, ...], int],
        rungs: Sequence[int],
        seed: int,
    ) -> None:
        """``settings``: values of the knobs, in their order, and the candidate that they come to."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._knobs, self._settings, self._rungs = knobs, settings, tuple(rungs)
        self._study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS, multivariate=True),
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=self._rungs[0], reduction_factor=REDUCTION),
        )
        self._random = random.Random(seed)
        self._first: dict[int, tuple[Value, ...]] = {}
        for setting, candidate in settings.items():
            self._first.setdefault(candidate, setting)
        self._tried: set[int] = set()
        self._current: Trial | None = None
        self._step: Step | None = None
        self.suggest([0])

    def suggest(self, candidates: Sequence[int]) -> None:
        """These come next, in this order."""
        for candidate in candidates:
            self._study.enqueue_trial(dict(zip(self._knobs, self._first[candidate], strict=True)))

    def untried(self) -> list[int]:
        return [candidate for candidate in self._first if candidate not in self._tried]

    def next(self) -> Step | None:
        """The next run; None where nothing is untried."""
        if self._step is None and self.untried():
            self._step = Step(self._ask(), 0)
        return self._step

    def tell(self, rate: float | None) -> None:
        """The rate that the run which ``next`` named came to; None where it has none that counts."""
        import optuna

        assert self._current is not None and self._step is not None, "next comes before"
        rung = self._step.rung
        if rate is not None:
            self._current.report(rate, self._rungs[rung])
            if rung + 1 < len(self._rungs) and not self._current.should_prune():
                self._step = Step(self._step.candidate, rung + 1)
                return
        states = optuna.trial.TrialState
        if rate is None:
            self._study.tell(self._current, state=states.FAIL)
        elif rung + 1 < len(self._rungs):
            self._study.tell(self._current, state=states.PRUNED)
        else:
            self._study.tell(self._current, rate)
        self._current = self._step = None

    def _ask(self) -> int:
        import optuna

        for _ in range(_MOST_MISSES):
            trial = self._study.ask()
            setting = tuple(cast(Value, trial.suggest_categorical(name, each)) for name, each in self._knobs.items())
            candidate = self._settings.get(setting)
            if candidate is not None and candidate not in self._tried:
                self._tried.add(candidate)
                self._current = trial
                return candidate
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        self.suggest([self._random.choice(self.untried())])
        return self._ask()
