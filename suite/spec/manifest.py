"""Everything that is resolved before a run, hashed; and the rule by which its row gets more runs."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from suite.spec.base import Frozen, Track, digest
from suite.spec.device import Precision
from suite.spec.fields import Declaring, Later
from suite.spec.layout import Layout
from suite.spec.shape import Shape
from suite.spec.typed import MOST_ITERATIONS, MOST_SECONDS
from suite.spec.workload import Workload

#: With fewer a lucky spread of the first runs ends a row too soon: the rule's promise is kept from here on.
FEWEST_RUNS = 3
_Share = Annotated[float, Field(gt=0, le=1)]


class Stopping(Frozen):
    """When a row has been run often enough. Shares of 1: 0.03 is 3 %."""

    precision: _Share | None = Field(default=None, description="most half-width of the 95 % interval of a row's rate")
    difference: _Share | None = Field(default=None, description="rows of equal work differ, or are equal within this")
    least: int = Field(ge=FEWEST_RUNS, le=1000, description="runs of every row before the first look")
    most: int = Field(ge=FEWEST_RUNS, le=1000, description="runs of a row, at most")
    iterations: Literal["fixed", "chosen"] = Field(
        description="chosen: those of the runs after the least ones follow from spread and start-up of these"
    )
    with_suspect: bool = Field(default=False, description="runs that something disturbed count too")

    @model_validator(mode="after")
    def _has_most(self) -> "Stopping":
        if self.most < self.least:
            raise ValueError(f"--most-repeats {self.most} is fewer than --repeats {self.least}")
        return self

    def text(self) -> str:
        asked = []
        if self.precision is not None:
            asked.append(f"each rate, or ratio of rows in turns, within {100 * self.precision:g} % (95 %)")
        if self.difference is not None:
            asked.append(f"rows told apart, or equivalent within {100 * self.difference:g} %")
        return "; ".join([*asked, "suspect runs count"] if self.with_suspect else asked)


MANIFEST_SCHEMA: Literal["suite/manifest/1"] = "suite/manifest/1"
#: What an environment may be called: part of the names of folders, containers and pods.
ENVIRONMENT = r"^[A-Za-z0-9][A-Za-z0-9.-]{0,30}$"
_Environment = Annotated[str, Field(pattern=ENVIRONMENT)]


class Backend(Declaring):
    """The stack under test. Engine backends run the suite's own iteration, trainer backends the stack's."""

    name: str
    kind: Literal["engine", "trainer"]
    environment: Annotated[_Environment | None, Later(help="which of several, as its user calls it")] = None

    @property
    def label(self) -> str:
        """``deepspeed``, or ``deepspeed@before`` in one of several environments."""
        return self.name if self.environment is None else f"{self.name}@{self.environment}"


class Measure(Declaring):
    """How long and how it is measured. ``iterations`` follow ``warmup`` ones, which are recorded but not counted."""

    device: Literal["cpu", "cuda"]
    precision: Precision
    threads_per_rank: int = Field(default=1, gt=0, description="OMP_NUM_THREADS and torch's threads of each rank")
    bind: Annotated[
        Literal["none", "near-gpu"], Later(help="near-gpu: on the CPUs near the rank's GPU, where the node tells them")
    ] = "none"
    variables: Annotated[
        dict[str, str],
        Later(help="given to every rank by the user, but for secrets; who runs it again gives them again"),
    ] = Field(default={})
    profile: Annotated[
        bool, Later(help="after the counted iterations, one more under torch's profiler, which counts nowhere")
    ] = False
    turns: Annotated[
        Literal["rounds", "iterations"],
        Later(help="iterations: rows that were started together take turns, one running while the others wait blocked"),
    ] = "rounds"
    turn_length: Annotated[
        int | None, Later(help="iterations of a turn, of several the first does not count; null: as their time decides")
    ] = Field(default=None, ge=1, le=255)
    warmup: int = Field(default=2, ge=1, le=MOST_ITERATIONS, description="the first iteration never counts")
    iterations: int = Field(default=8, gt=0, le=MOST_ITERATIONS)
    seed: int = Field(default=1234, ge=0)


class Limits(Frozen):
    """When a run is given up."""

    run_seconds: float = Field(default=3600.0, gt=0, le=MOST_SECONDS)
    silence_seconds: float = Field(default=600.0, gt=0, le=MOST_SECONDS, description="longest without an event")


class SampleLengths(Frozen):
    """Tokens of each sample's prompt and response, in the order in which samples are dealt to replicas."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]


class Work(Declaring):
    """What one iteration asks of each replica, computed from workload and layout; the worker reads only this."""

    global_rollouts: int = Field(gt=0)
    replica_rollouts: int = Field(gt=0, description="samples of one data-parallel replica")
    replica_batch: int = Field(gt=0, description="samples of one replica in one optimizer step")
    micro_batch: int = Field(gt=0)
    lengths: Annotated[SampleLengths | None, Later(help="of all samples of an iteration, where they are uneven")] = None

    @model_validator(mode="after")
    def _every_sample_has_its_lengths(self) -> "Work":
        for _, tokens in self.lengths or ():
            if len(tokens) != self.global_rollouts or min(tokens) < 1:
                raise ValueError(f"lengths are those of {self.global_rollouts} samples, each of a token at least")
        return self


class Run(Declaring):
    """Which execution this is; the only part of a manifest outside its hash, so that its runs are of one row."""

    id: str
    plan: str = Field(description="hash of the request the run belongs to")
    repeat: int = Field(ge=1)
    stopping: Annotated[Stopping | None, Later(help="the rule that adds runs to its row; absent: none")] = None
    iterations: Annotated[
        PositiveInt | None, Later(help="counted ones of this run, where the rule chose others than the measure has")
    ] = None
    base: Annotated[_Environment | None, Later(help="environment that was named first, of a run in another")] = None


class Manifest(Declaring):
    """The file a worker is started with. ``hash`` covers everything but ``run``; ``work_hash`` the equal work."""

    schema_: Literal["suite/manifest/1"] = Field(default=MANIFEST_SCHEMA, alias="schema")
    run: Run
    backend: Backend
    size: Shape
    workload: Workload
    work: Work
    layout: Layout
    measure: Measure
    limits: Limits
    track: Track = "equal-config"
    stack: dict[str, str] = Field(description="package -> version the worker must find")
    stack_code: Annotated[
        dict[str, str], Later(help="package -> digest of the code that the worker must find; none for runs in an image")
    ] = Field(default={})
    hash: str
    work_hash: str

    @property
    def stack_identity(self) -> dict[str, str]:
        """Package -> its version, with the digest of its code where that is known."""
        return {name: f"{version} {self.stack_code.get(name, '')}".strip() for name, version in self.stack.items()}

    @property
    def iterations(self) -> int:
        return self.run.iterations or self.measure.iterations

    @model_validator(mode="after")
    def _is_whole(self) -> "Manifest":
        if self.workload.uneven != (self.work.lengths is not None):
            raise ValueError("the work of an uneven workload, and of no other, has the length of each sample")
        body = self.model_dump(mode="json", by_alias=True)
        if self.hash != manifest_hash(body):
            raise ValueError("the manifest was changed after it was made: its hash does not fit its content")
        if self.work_hash != work_hash(self.size, self.workload, self.layout.ranks, self.measure.seed):
            raise ValueError("the manifest was changed after it was made: its work hash does not fit its work")
        return self


def manifest_hash(body: dict) -> str:
    """Hash of a manifest's JSON body without its run identity and its own hashes."""
    return digest({key: value for key, value in body.items() if key not in ("run", "hash", "work_hash")})


def work_hash(size: Shape, workload: Workload, devices: int, seed: int) -> str:
    """Equal hashes mean equal work: same shape, same workload, same number of samples in all, of the same lengths, as
    ``seed`` draws them. Names, notes and sources are not work; nor is the scaling word, once the samples are known."""
    shape = size.model_dump(mode="json", exclude={"name", "note", "source"})
    work = workload.model_dump(mode="json", exclude={"name", "note", "source", "rollouts", "scaling"})
    drawn = {"seed": seed} if workload.uneven else {}
    return digest({"shape": shape, "work": work, "rollouts": workload.global_rollouts(devices), **drawn})
