"""A study from its question to its end: the trials, then the winners again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.conduct.planning.machine import Machine
from suite.conduct.planning.request import Request
from suite.conduct.planning.turns import ITERATIONS, Turning
from suite.conduct.running.provenance import git_commit
from suite.conduct.running.session import Settings, View
from suite.launch.outcome import Launcher
from suite.launch.probe import host_facts
from suite.spec.base import UsageError
from suite.spec.version import suite_version
from suite.tune.answer import answered
from suite.tune.confirm import Confirmation
from suite.tune.search import REDUCTION, optuna_version
from suite.tune.show import budget_text
from suite.tune.space import Rows, Space, spaces_of, work_of
from suite.tune.study import CONFIRMED, Question, Searched, Study, read_study, require_same, write_study
from suite.tune.trials import Trials

#: Counted iterations of a trial's longest run, where nobody says; and how many runs a trial has at most.
LONGEST, RUNGS = 18, 3


@dataclass(frozen=True)
class Asked:
    """What a user asks of a study."""

    request: Request
    iterations: int | None
    knobs: tuple[str, ...]
    fixed: tuple[str, ...]
    budget_seconds: float
    starts: int

    @property
    def rungs(self) -> tuple[int, ...]:
        longest = self.iterations or LONGEST
        return tuple(sorted({max(1, longest // REDUCTION**step) for step in range(RUNGS)}))


class Course:
    """A study that can be made: its spaces, and what its folder holds of it."""

    def __init__(self, asked: Asked, machine: Machine, folder: Path) -> None:
        """Raises UsageError where it cannot be made, or the folder holds another."""
        version, backends = optuna_version(), asked.request.backends
        rows = Rows(asked.request, machine, machine.stacks(backends), machine.images(backends), machine.code(backends))
        self._rows, self._folder = rows, folder
        self._spaces = spaces_of(rows, asked.knobs, asked.fixed, asked.rungs[-1])
        self.study = _begun(folder, asked, _question(asked, rows, self._spaces, version))
        self.notes: tuple[str, ...] = ()

    def run(self, settings: Settings, launcher: Launcher, turning: Turning, view: View) -> bool:
        """Make what is not there yet; whether somebody interrupted it. Raises UsageError."""
        trials = Trials(self.study, self._spaces, self._folder, view)
        if trials.run(settings, launcher):
            return True
        study = trials.study.model_copy(update={"winners": trials.winners()})
        confirmation = Confirmation(study, self._spaces, self._rows, turning)
        self.study, self.notes = study.model_copy(update={"confirmed": confirmation.confirmed}), confirmation.notes
        write_study(self._folder, self.study)
        again = settings.model_copy(update={"root": self._folder / CONFIRMED})
        if confirmation.run(again, launcher, view).interrupted:
            return True
        self.study = answered(self._folder, self.study)
        write_study(self._folder, self.study)
        return False


def _question(asked: Asked, rows: Rows, spaces: Sequence[Space], optuna: str) -> Question:
    first = spaces[0].default.manifest
    facts = host_facts()
    workload = first.workload
    lengths = workload.lengths.text() if workload.lengths else f"{workload.new_tokens} tokens"
    return Question(
        size=first.size.name,
        ranks=first.layout.ranks,
        device=first.measure.device,
        precision=first.measure.precision,
        work=work_of(first),
        told=f"{workload.algorithm.text()} on {first.work.global_rollouts} samples with responses of {lengths}",
        seed=first.measure.seed,
        warmup=first.measure.warmup,
        rungs=asked.rungs,
        starts=asked.starts,
        iterations=asked.iterations or ITERATIONS,
        searched=tuple(
            Searched(
                backend=space.backend,
                stack=space.default.manifest.stack_identity,
                default=space.default.manifest.hash,
                knobs=space.knobs,
                candidates=len(space.candidates),
                refused=space.refused,
            )
            for space in spaces
        ),
        machine={"cpu": facts["cpu"], "memory_gib": facts["memory_bytes"] >> 30, "device": rows.machine.device_name},
        commit=git_commit(),
        suite_version=suite_version(),
        optuna=optuna,
    )


def _begun(folder: Path, asked: Asked, question: Question) -> Study:
    """The study of the folder, which its trials are read into again, or a new one. Raises UsageError."""
    stored = read_study(folder)
    if stored is not None:
        require_same(folder, stored.question, question)
    if stored is not None and asked.budget_seconds < stored.budget_seconds:
        raise UsageError(
            f"the study in {folder} has a budget of {budget_text(stored.budget_seconds)}, of which some may be spent: "
            "ask for no less, or name another folder with --runs"
        )
    return Study(question=question, budget_seconds=asked.budget_seconds)
