"""What goes into a report, what it rests on, and what kind of work rows do: those of different kinds are told apart in
every table, and never ranked together."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from suite.bundle.record import Record
from suite.report.formatting.numbers import listed
from suite.spec.algorithms import PPO_NAME
from suite.spec.manifest import Manifest

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
#: Runs that a figure needs before it may be published, and before it may be put in an order (facts of the method).
RUNS_TO_PUBLISH, RUNS_TO_RANK = 3, 5


@dataclass(frozen=True)
class Entry:
    """One run: what was asked, what came out, the path of its bundle as the report shows it, and its digest."""

    manifest: Manifest
    record: Record
    path: str
    digest: str | None = None


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """By key, in the order in which they come first, the values that have it."""
    found: dict[_Key, list[_Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


#: The clock of rows that the suite timed itself, between barriers.
SUITE_CLOCK = "suite"


@dataclass(frozen=True, order=True)
class Setting:
    """What two rows must share, besides their work, before their rates may be compared. ``turns``: of iterations, in
    which neighbours are resident and wait, or of whole runs. ``clock``: the suite's, or whose log the seconds are from.
    """

    kind: Literal["engine", "trainer"]
    track: str
    device: Literal["cpu", "cuda"]
    precision: str
    threads_per_rank: int
    machine: str
    turns: Literal["rounds", "iterations"] = "rounds"
    asynchronous: bool = False
    clock: str = SUITE_CLOCK


@dataclass(frozen=True)
class ReportEvidence:
    """``digest``: over all bundles below ``paths``, those left out too; null where one has none. ``bundles``: path of
    each run's, and the digest of its evidence (docs/evidence.md), null where it has none."""

    digest: str | None = None
    paths: tuple[str, ...] = ()
    bundles: dict[str, str | None] = field(default_factory=dict)


#: What their makers call the families of shapes.
FAMILIES = {
    "gpt2": "GPT-2",
    "opt": "OPT",
    "llama": "Llama",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "mixtral": "Mixtral",
    "qwen3_moe": "Qwen3-MoE",
}


@dataclass(frozen=True, order=True)
class WorkKind:
    """PPO comes first where kinds are sorted. ``options``: of the algorithm, those that are not its defaults.
    ``prompts`` and ``responses``: their distribution as the command line has it, or ``even``."""

    is_not_ppo: bool
    algorithm: str
    options: str
    group: int
    family: str
    responses: str
    prompts: str

    @property
    def text(self) -> str:
        """``GRPO in groups of 8 on Llama, responses lognormal:mean=512,sigma=0.6,cap=4096``."""
        options = f" ({self.options})" if self.options else ""
        groups = f" in groups of {self.group}" if self.group > 1 else ""
        lengths = {"prompts": self.prompts, "responses": self.responses}
        uneven = [f"{name} {text}" for name, text in lengths.items() if text != "even"]
        return f"{self.algorithm}{options}{groups} on {self.family}" + (f", {listed(uneven)}" if uneven else "")


def kind_of(manifest: Manifest) -> WorkKind:
    """All that it says is work, so that equal work is of one kind."""
    workload = manifest.workload
    return WorkKind(
        is_not_ppo=workload.algorithm.name != PPO_NAME,
        algorithm=workload.algorithm.name.upper(),
        options=workload.algorithm.text().partition(":")[2].replace(",", ", "),
        group=workload.group,
        family=FAMILIES[manifest.size.architecture],
        responses=workload.lengths.text() if workload.lengths else "even",
        prompts=workload.prompt_lengths.text() if workload.prompt_lengths else "even",
    )
