"""The file of a study: what was searched, under which rules, every trial in its order, why it ended, who won.

Every figure in it is one of a bundle beside it, by which it can be checked (``suite.tune.check``).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError

from suite.bundle.files import DamagedBundle, first_line, parse_object, read_text, replace_atomically, writing
from suite.bundle.schemas import of_model
from suite.bundle.walk import STUDY
from suite.spec.base import Frozen, UsageError, digest
from suite.spec.names import SAFE_ID
from suite.spec.schema_files import not_read
from suite.stats.compare import Comparison
from suite.stats.intervals import Interval
from suite.tune.knobs import KNOBS, Value

STUDY_SCHEMA: Literal["suite/study/1"] = "suite/study/1"
#: The folder of the bundles of rows that were measured again.
CONFIRMED = "confirmed"
#: Of the budget, where the curve of the best so far is told.
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
#: The rules, each by its name and in words. A study holds them, so that a reader need not know this version.
RULES: dict[str, str] = {
    "budget": "device-seconds of each backend: its trials from launch to end, start-up in, times their devices; a "
    "failed one costs what it took, an interrupted one nothing; none is begun that is expected to go beyond the "
    "budget",
    "order": "the backend that has spent least has the next run",
    "search": "each backend's own row, those that the planner expects to be fastest, then Optuna's TPESampler; a "
    "trial is run with more iterations, in fresh processes, while SuccessiveHalvingPruner has it among the best third",
    "work": "all but the knobs is the equal-config row's; a trial whose losses are off that row's by more than 2 % of "
    "their mean, which counts as 0.1 at least, did other work and cannot win",
    "winner": "the highest rate among the trials that got furthest",
    "end": "the budget; nothing untried; or no untried row can win by more than 2 %, by the planner's prediction "
    "times the best ratio of measured to predicted rates, once each value of each knob was tried",
    "confirmation": "winners and equal-config rows in turns, in fresh runs; then each winner with one knob taken "
    "back, for the three that gave most in its trials",
}
Outcome = Literal["ok", "failed", "other work"]
RunId = Annotated[str, Field(pattern=f"^{SAFE_ID.pattern}$")]
KnobName = Annotated[str, Field(pattern=f"^({'|'.join(KNOBS)})$")]
StopReason = Literal["budget", "nothing untried", "within 2 %"]


class Searched(Frozen):
    """What is searched of one backend."""

    backend: str
    stack: dict[str, str]
    default: str = Field(description="hash of the manifest of its own row, with the iterations of the longest rung")
    knobs: dict[str, tuple[Value, ...]] = Field(description="the values of each, that of its own row first")
    candidates: int = Field(description="settings of the knobs that can be run and differ")
    refused: dict[str, int] = Field(description="why others cannot be run -> how many")


class Question(Frozen):
    """What makes two studies the same: a command that asks it again goes on."""

    size: str
    ranks: int
    device: str
    precision: str
    work: str = Field(description="digest of all that is work (suite.tune.space)")
    told: str = Field(description="the work in words")
    seed: int
    warmup: int
    rungs: tuple[int, ...] = Field(min_length=1, max_length=3, description="counted iterations of a trial's runs")
    starts: int = Field(description="of the winners, when they are measured again")
    iterations: int = Field(description="counted ones of each of these runs")
    searched: tuple[Searched, ...]
    machine: dict[str, JsonValue]
    commit: str | None
    suite_version: str
    optuna: str

    @property
    def digest(self) -> str:
        return digest(self.model_dump(mode="json"))


class Trial(Frozen):
    """One run of the search, as its bundle says."""

    backend: str
    choice: dict[KnobName, Value]
    rung: int = Field(ge=0, le=2)
    run: RunId
    device_seconds: float
    outcome: Outcome
    rate: float | None = Field(description="samples/s; null: none was measured")
    why: str | None = Field(description="of a failure its kind; of other work how far its losses are off")
    suspect: bool


class Stop(Frozen):
    """Why a backend gets no more trials. ``expected_seconds``: device-seconds of the one that was not begun."""

    backend: str
    why: StopReason
    expected_seconds: float | None = None


class Winner(Frozen):
    """The best trial of a backend, by the run that got furthest."""

    backend: str
    choice: dict[KnobName, Value]
    run: RunId
    planned: int | None = Field(
        default=None, description="its place in the planner's order of all rows of its space; null: it knows nothing"
    )


class Confirmed(Frozen):
    """A row that is measured again, in starts with others. ``without``: the knob that is as in the default; ``runs``:
    one of each start."""

    backend: str
    row: Literal["equal-config", "tuned", "without"]
    without: KnobName | None = None
    choice: dict[KnobName, Value]
    runs: tuple[RunId, ...]


class Place(Frozen):
    """A backend in an order. ``against_best``: its rate over the best's; null for the best, and where nothing tells."""

    backend: str
    rate: Interval | None = Field(description="samples/s")
    against_best: Comparison | None
    is_best: bool


class Gain(Frozen):
    """What ``turned`` knobs gave a backend over ``back``: all of its winner's over its own row, or one of them over the
    winner without it."""

    backend: str
    turned: dict[KnobName, Value]
    back: dict[KnobName, Value]
    ratio: Comparison | None = Field(description="of the rates when both were measured again")
    trial: float | None = Field(default=None, description="ratio of the trials with most iterations")
    rate: Interval | None = Field(default=None, description="samples/s of the winner, measured again")
    trial_rate: float | None = Field(default=None, description="samples/s of its trial")


class Answer(Frozen):
    """What the bundles of a study come to (``suite.tune.answer``). ``tuned``, ``equal_config``: fastest first."""

    tuned: tuple[Place, ...]
    equal_config: tuple[Place, ...]
    held_back: str | None = Field(description="the best of the tuned, where equal settings put it after another")
    gains: tuple[Gain, ...]
    knobs: tuple[Gain, ...]
    curve: dict[str, tuple[float | None, ...]] = Field(
        description="backend -> best rate in samples/s when 10, 25, 50, 75 and 100 % of its budget were spent"
    )
    failures: dict[str, dict[str, int]] = Field(description="backend -> reason -> trials")
    suspect: int = Field(description="trials that something disturbed")


class Study(Frozen):
    """``trials`` in the order in which they were made."""

    schema_: Literal["suite/study/1"] = Field(default=STUDY_SCHEMA, alias="schema")
    question: Question
    budget_seconds: float = Field(gt=0, description="of each backend, on each of its devices")
    rules: dict[str, str] = RULES
    trials: tuple[Trial, ...] = ()
    stops: tuple[Stop, ...] = ()
    winners: tuple[Winner, ...] = ()
    confirmed: tuple[Confirmed, ...] = ()
    answer: Answer | None = Field(default=None, description="null until the winners were measured again")

    @property
    def budget(self) -> float:
        """Device-seconds of each backend."""
        return self.budget_seconds * self.question.ranks

    def of(self, backend: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.backend == backend]

    def spent(self, backend: str) -> float:
        return sum(trial.device_seconds for trial in self.of(backend))


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """By the rule ``winner``; None where none has a rate."""
    measured = [trial for trial in trials if trial.outcome == "ok" and trial.rate is not None]
    return max(measured, key=lambda trial: (trial.rung, trial.rate), default=None)


def read_study(folder: Path) -> Study | None:
    """That of a results folder; None where it has none. Raises DamagedBundle."""
    name = str(folder / STUDY)
    try:
        body = parse_object(read_text(folder / STUDY, name), name)
    except FileNotFoundError:
        return None
    if body.get("schema") != STUDY_SCHEMA:
        question = body.get("question")
        maker = question.get("suite_version") if isinstance(question, dict) else None
        raise DamagedBundle(not_read(name, body.get("schema"), STUDY_SCHEMA, maker))
    try:
        return Study.model_validate_json(json.dumps(body))
    except ValidationError as error:
        raise DamagedBundle(f"{name}: {first_line(error)}") from error


def write_study(folder: Path, study: Study) -> None:
    """Replace it at once. Raises UsageError."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    replace_atomically(folder / STUDY, study.model_dump_json(by_alias=True, indent=1) + "\n")


def require_same(folder: Path, stored: Question, asked: Question) -> None:
    """Raises UsageError, with what differs, where a folder holds a study of something else."""
    if stored.digest == asked.digest:
        return
    found, wanted = stored.model_dump(mode="json"), asked.model_dump(mode="json")
    names = [name for name in wanted if found.get(name) != wanted[name]]
    values = "; ".join(f"{name}: {_short(found[name])} there, {_short(wanted[name])} asked for" for name in names[:3])
    raise UsageError(f"{folder} holds another study ({values}); name another folder with --runs, or ask for that one")


def _short(value: JsonValue) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def study_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    title = "study.json: a search for each stack's best layout, with every trial and the winners"
    return of_model(Study, STUDY_SCHEMA, title)
