"""The trials of a study, one after the other: the backend that has spent least has the next run, until all have ended.

What is there already is read and told to the search again, so that a study goes on where it was cut off.
"""

from collections.abc import Sequence
from pathlib import Path

from suite.bundle.record import Record
from suite.bundle.walk import TRIALS
from suite.conduct.planning.plan import Plan
from suite.conduct.running.session import Ledger, Settings, View, run_plan
from suite.conduct.running.state import state_of
from suite.launch.outcome import Launcher
from suite.report.formatting.numbers import span
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from suite.spec.resolve import as_repeat
from suite.tune.bundles import Reference, made
from suite.tune.expected import Expectation
from suite.tune.knobs import changed, told
from suite.tune.search import FROM_PLANNER, Searcher, Step
from suite.tune.space import Space
from suite.tune.study import Stop, StopReason, Study, Trial, Winner, best_of, write_study


class Side:
    """One backend of a study: its space, its search, and the run that is waited for."""

    def __init__(self, space: Space, rungs: Sequence[int], seed: int) -> None:
        self.space, self._rungs = space, tuple(rungs)
        self.searcher = Searcher(space.knobs, space.settings, rungs, seed)
        self.expectation: Expectation | None = None
        self.reference = Reference(space.default.choice)
        self.waiting: str | None = None

    @property
    def backend(self) -> str:
        return self.space.backend

    def manifest(self, step: Step) -> Manifest:
        """The rungs of a trial are repeats of one row with other numbers of iterations."""
        return as_repeat(self.space.candidates[step.candidate].manifest, step.rung + 1, self._rungs[step.rung])

    def note(self, step: Step, record: Record, trial: Trial) -> None:
        """Tell the search what a run came to; the first runs are those of the backend's own row."""
        if step.candidate == 0 and trial.outcome == "ok":
            self.expectation = self.expectation or Expectation(self.space, record)
        self.searcher.tell(trial.rate if trial.outcome == "ok" else None)
        if step == Step(0, 0) and self.expectation is not None:
            self.searcher.suggest(self.expectation.fastest(FROM_PLANNER))

    def nobody_left(self, trials: Sequence[Trial]) -> bool:
        """Whether no row that was not tried is worth trying."""
        return self.expectation is not None and self.expectation.none_can_win(trials, self.searcher.untried())

    def seconds(self, step: Step, trials: Sequence[Trial], warmup: int) -> float:
        """Device-seconds that a run should take, by those before it; 0 before the first."""
        manifest = self.space.candidates[step.candidate].manifest
        ranks, samples = manifest.layout.ranks, manifest.work.global_rollouts
        if step.rung == 0:
            alike = [trial.device_seconds for trial in trials if trial.rung == 0]
            return sum(alike) / len(alike) if alike else 0.0
        before = trials[-1]
        assert before.rate is not None, "a trial goes on from a rung that it has a rate of"
        each = ranks * samples / before.rate
        start = max(0.0, before.device_seconds - (warmup + self._rungs[before.rung]) * each)
        return start + (warmup + self._rungs[step.rung]) * each


class Trials:
    """The search of a study. ``study`` is what is known of it."""

    def __init__(self, study: Study, spaces: Sequence[Space], folder: Path, view: View) -> None:
        self.study, self._folder, self._root, self._view = study, folder, folder / TRIALS, view
        question = study.question
        self._sides = [Side(space, question.rungs, question.seed) for space in spaces]

    def run(self, settings: Settings, launcher: Launcher) -> bool:
        """Search to the end; whether somebody interrupted it. Raises UsageError."""
        empty = Plan(id=self.study.question.digest[:12], manifests=())
        settings = settings.model_copy(update={"root": self._root})
        return run_plan(empty, settings, launcher, self._view, further=self.more).interrupted

    def more(self, ledger: Ledger) -> tuple[list[Manifest], float]:
        """The next run that is not there yet (``suite.conduct.running.session.Further``); none at the end."""
        while (found := self._next()) is not None:
            side, step = found
            manifest = side.manifest(step)
            if state_of(self._root, manifest) in ("done", "failed before"):
                self._note(side, step, manifest.run.id)
            elif side.waiting == manifest.run.id:
                raise UsageError(f"{manifest.run.id} is being run by another process: one command at a time searches")
            else:
                side.waiting = manifest.run.id
                self._tell(side, step)
                return [manifest], 0.0
        return [], 0.0

    def winners(self) -> tuple[Winner, ...]:
        """The best trial of each backend that has one."""
        found = []
        for side in self._sides:
            best = best_of(self.study.of(side.backend))
            if best is not None:
                known = side.expectation
                planned = known.place(best.choice) if known is not None else None
                found.append(Winner(backend=side.backend, choice=best.choice, run=best.run, planned=planned))
        return tuple(found)

    def _next(self) -> tuple[Side, Step] | None:
        """The backend that has spent least, and its next run, once those that have none left have ended."""
        while True:
            ended = {stop.backend for stop in self.study.stops}
            going = [side for side in self._sides if side.backend not in ended]
            if not going:
                return None
            side = min(going, key=lambda side: self.study.spent(side.backend))
            step = side.searcher.next()
            if step is None:
                self._stop(side, "nothing untried")
                continue
            trials = self.study.of(side.backend)
            if step.rung == 0 and side.nobody_left(trials):
                self._stop(side, "within 2 %")
                continue
            expected = side.seconds(step, trials, self.study.question.warmup)
            if self.study.spent(side.backend) + expected > self.study.budget:
                self._require_a_trial(side, expected)
                self._stop(side, "budget", round(expected, 3))
                continue
            return side, step

    def _tell(self, side: Side, step: Step) -> None:
        self._view.planned(len(self.study.trials) + 1)
        turned = told(changed(side.space.candidates[step.candidate].choice, side.space.default.choice)) or "its own row"
        spent, budget = self.study.spent(side.backend), self.study.budget
        self._view.notice(f"{side.backend}, {100 * spent / budget:.0f} % of its budget spent; tries: {turned}")

    def _note(self, side: Side, step: Step, run: str) -> None:
        found = made(self._root, run)
        assert found is not None, "its state was looked at"
        choice = side.space.candidates[step.candidate].choice
        trial = side.reference.trial(side.backend, choice, step.rung, found)
        self._keep(trials=(*self.study.trials, trial))
        side.note(step, found.record, trial)

    def _stop(self, side: Side, why: StopReason, expected: float | None = None) -> None:
        self._keep(stops=(*self.study.stops, Stop(backend=side.backend, why=why, expected_seconds=expected)))

    def _require_a_trial(self, side: Side, expected: float) -> None:
        """Raises UsageError where a backend got none to its end, so that nothing could be compared."""
        trials = self.study.of(side.backend)
        spent = self.study.spent(side.backend)
        if best_of(trials) is not None and (len(trials) > 1 or spent <= self.study.budget):
            return
        last = next((f"; {trial.run} failed: {trial.why}" for trial in reversed(trials) if trial.why), "")
        raise UsageError(
            f"the budget of {span(self.study.budget)} device-seconds is too short for a trial of {side.backend}: "
            f"{span(spent)} are spent, and the next should take {span(expected)}{last}; the same command with a larger "
            "--budget goes on"
        )

    def _keep(self, **changes: object) -> None:
        self.study = self.study.model_copy(update=changes)
        write_study(self._folder, self.study)
