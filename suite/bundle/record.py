"""record.json: what a run measured, derived from its bundle and from nothing else (docs/contracts.md)."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, create_model, model_serializer, model_validator

from suite.bundle.parts import LEAST_SECONDS, MOST_COUNT, MOST_SECONDS, Count, Noise, Overlap, Peaks, Seconds, Validity
from suite.launch.outcome import FailureKind
from suite.spec.base import Frozen, Track
from suite.spec.device import Precision
from suite.spec.layout import Layout
from suite.spec.phases import ALL
from suite.spec.workload import Scaling

RECORD_SCHEMA: Final = "suite/record/1"
#: How the note of a run begins whose counts are of no one number.
NO_WORK = "no rate without its work"
_Positive = Annotated[float, Field(ge=LEAST_SECONDS, le=MOST_SECONDS)]

Status = Literal["ok", "failed", "interrupted"]
Verdict = Literal["steady", "drifting", "no steady state"]


class RunFacts(Frozen):
    """Which execution the record is of; all but the launcher and the times comes from the manifest."""

    id: str
    plan: str = Field(description="hash of the request the run belongs to")
    backend: str
    backend_kind: Literal["engine", "trainer"]
    size: str = Field(description="name of the model size")
    ranks: int
    layout: Layout
    strategy: str = Field(description="the layout's label without its data parallel degree")
    launcher: str | None = Field(description="from the driver's launch event; null: it was never launched")
    repeat: int
    started: float | None = Field(description="Unix seconds of the launch, else of the first event of a rank")
    ended: float | None = Field(description="Unix seconds of the driver's end, else of the last event there is")
    workload: str = Field(description="name of the workload")
    scaling: Scaling
    track: Track
    manifest_hash: str
    work_hash: str = Field(description="equal hashes are equal work")
    device: Literal["cpu", "cuda"]
    precision: Precision


class Failure(Frozen):
    """Why a run failed, with the lines that prove it."""

    kind: FailureKind
    phase: str | None = Field(description="the phase it was in; null: unknown or outside of any")
    evidence: tuple[str, ...]
    iteration: int | None = Field(default=None, description="null: unknown, outside of any, or an older bundle")


class Counts(Frozen):
    """Work of one iteration, global: over all replicas, equal on every rank and in every counted iteration.

    Null is only what a trainer's own log does not tell, where the suite has nothing else to count by.
    """

    samples: int = Field(gt=0, le=MOST_COUNT)
    prompt_tokens: Count
    response_tokens: Count
    padded_tokens: Count | None = Field(description="positions that hold padding")
    trained_tokens: Count | None = Field(description="positions through forward and backward, summed over PPO epochs")
    optimizer_steps: Count | None
    trainable_parameters: Count | None = Field(description="unpadded, value head in")
    total_parameters: Count | None = Field(description="policy with value head, unpadded")


class Estimate(Frozen):
    """A rate per second, or seconds, with the 95 % interval; the bounds are null where one iteration alone was counted,
    and of seconds where all are 0."""

    value: float
    low: float | None
    high: float | None


class Throughput(Frozen):
    """Total work over total time of the counted iterations."""

    samples_per_second: Estimate
    tokens_per_second: Estimate = Field(description="prompt and response tokens")
    tokens_per_second_per_device: Estimate = Field(description="tokens_per_second over ranks")
    convention: str = Field(description="what the tokens and the interval are")


class Phase(Frozen):
    """One phase of an iteration: mean over the counted iterations of the slowest rank's own time."""

    seconds: Seconds = Field(description="mean seconds per counted iteration")
    share: float | None = Field(description="of the iteration, 1 in all where ranks agree; null: an asynchronous run")
    tokens_per_second: float | None = Field(description="of those that suite.spec.phases declares; null: none, no time")


class _Phases(Frozen):
    """The phases of an iteration; null: the backend does not tell this phase apart."""

    if TYPE_CHECKING:  # one for each declared phase (``suite.spec.phases``)

        def __init__(self, **phases: Phase | None) -> None: ...

        def __getattr__(self, name: str) -> Phase | None: ...

    @model_serializer(mode="wrap")
    def _without_optional_ones(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        optional = {phase.name for phase in ALL if phase.optional}
        return {name: value for name, value in plain(self).items() if value is not None or name not in optional}


if TYPE_CHECKING:
    Phases = _Phases
else:
    _of_phases = {phase.name: (Phase | None, None) if phase.optional else (Phase | None, ...) for phase in ALL}
    Phases = create_model("Phases", __base__=_Phases, __doc__=_Phases.__doc__, **_of_phases)


class Wait(Frozen):
    """How long ranks that were done with a phase waited for the slowest: seconds per counted iteration."""

    longest_seconds: Seconds = Field(description="of the rank that waited longest in each iteration, mean over them")
    mean_seconds: Seconds = Field(description="mean over ranks and iterations")


class Floor(Frozen):
    """The least memory a device needs under this layout: the maximum over phases (suite.theory.memory)."""

    bytes: int
    phase: str = Field(description="the phase that needs most")
    parts: dict[str, int] = Field(description="bytes of that phase by part")
    by_phase: dict[str, int] = Field(description="bytes by phase")


class Memory(Peaks):
    """Maximum over ranks and counted phases, against the floor; of a split run on the training side."""

    resident_baseline_bytes: int | None = Field(description="resident before the model was built, maximum over ranks")
    theoretical_minimum_bytes: int | None = Field(description="floor.bytes")
    efficiency: float | None = Field(description="floor over peak reserved; on CPU over peak allocated")
    efficiency_allocated: float | None = Field(description="floor over peak allocated")
    by_phase: dict[str, Peaks] = Field(description="maximum over ranks by phase, setup among them")
    min_over_ranks: Peaks = Field(description="the least loaded rank's peaks")
    allocation_retries: int | None = Field(description="in counted iterations, over ranks; above 0: memory was full")
    floor: Floor | None


class Compute(Frozen):
    """Work in FLOPs per iteration, global, and how much of the devices' peak it used."""

    model_flops: float | None
    hardware_flops: float | None = Field(description="recomputed work counted")
    mfu: float | None = Field(description="model FLOPs / (seconds x peak x ranks), a ratio")
    hfu: float | None = Field(description="hardware FLOPs / (seconds x peak x ranks), a ratio")
    mbu: float | None = Field(description="bytes read in decoding / (generate seconds x peak bandwidth), a ratio")
    peak_flops: float | None = Field(description="dense FLOP/s of one device at the run's precision; null: unknown")
    convention: str | None
    hardware_flops_causal: float | None = Field(
        default=None, description="hardware_flops of what a causal mask leaves, as a fused kernel executes it"
    )
    hfu_causal: float | None = Field(default=None, description="hardware_flops_causal / (seconds x peak x ranks)")


class Energy(Frozen):
    """GPU board energy over the counted iterations, summed over ranks, each of which has a device of its own."""

    joules: float | None = Field(ge=0, le=1e300)
    joules_per_sample: float | None
    valid: bool
    reasons: tuple[str, ...] = Field(description="why it is not valid; empty when it is")


class LengthSummary(Frozen):
    """Tokens of the prompts or of the responses of one iteration; percentiles are lengths that occur."""

    mean: float = Field(gt=0)
    p50: int
    p90: int
    p99: int
    max: int
    at_cap: float | None = Field(description="share of samples at the cap; null: the distribution has none")


class RealisedLengths(Frozen):
    """The lengths that the workload's distributions gave, the same in every iteration."""

    prompt: LengthSummary
    response: LengthSummary


class Padding(Frozen):
    """Positions of padding that went through training with uneven samples, per iteration, global."""

    padded_tokens: Count
    share: float = Field(ge=0, le=1, description="of all positions that went through forward and backward")
    packed: bool = Field(description="samples of a micro batch in one row, end to end")


class Rollout(Frozen):
    """Generation over the counted iterations; null: not told."""

    idle_slot_share: float | None = Field(
        description="of a replica's token steps, those of samples that have ended, 1 - mean / longest; null: even"
    )
    idle_slot_seconds: Seconds | None = Field(description="from a sample's end to its generation's, mean over all")
    logprob_difference_mean: float | None = Field(
        description="between the engine's own log-probs and the policy's, mean over response tokens and iterations"
    )
    logprob_difference_max: float | None = Field(description="the largest of any rank and iteration")
    effective_sample_size: float | None = Field(ge=0, le=1, description="of importance weights, as a share of tokens")


class SteadyState(Frozen):
    """Whether the counted iterations are of one steady process."""

    verdict: Verdict | None = Field(description="null: too few iterations to tell")
    warmup: Count = Field(description="iterations left out at the start, as the manifest says")
    iterations: Count = Field(description="counted iterations")
    reasons: tuple[str, ...]
    test: str = Field(description="the test and its thresholds, in words")


class Iterations(Frozen):
    """The raw samples beside the statistics."""

    seconds: tuple[_Positive, ...] = Field(description="of all completed ones, slowest rank, warm-up first")


class Turns(Frozen):
    """With whom a run took turns by iteration. ``phases`` are the raw samples of ratios within turns."""

    start: str = Field(description="the same of all runs that were started together")
    rows: tuple[str, ...] = Field(description="ids of these runs, this one among them")
    begins: tuple[int, ...] = Field(description="iterations that began a turn; of several the first does not count")
    phases: dict[str, tuple[Seconds, ...]] = Field(description="by phase, of all completed iterations, slowest rank")


class Environment(Frozen):
    worker: dict[str, JsonValue] | None = Field(description="rank 0's facts, as its environment event has them")
    driver: dict[str, JsonValue] | None = Field(description="environment.json")


class Evidence(Frozen):
    """The files that the record was derived from, and all others of the bundle but itself (docs/evidence.md)."""

    digest: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 over the list of the files")
    files: int = Field(ge=0, description="how many they are")


class Record(Frozen):
    """One run's measurements: rates per second, seconds, bytes. Null is what is unknown, or came after the bundle."""

    schema_: Literal["suite/record/1"] = Field(default=RECORD_SCHEMA, alias="schema")
    run: RunFacts
    status: Status
    failure: Failure | None
    counts: Counts | None = Field(description="per iteration; null where none was completed")
    throughput: Throughput | None = Field(description="null where no iteration after the warm-up was completed")
    phases: Phases | None
    details: dict[str, Seconds] | None = Field(
        default=None, description="mean seconds by `phase/part` of the rank that took longest; null: none are told"
    )
    phase_intervals: dict[str, Estimate] | None = Field(default=None, description="`phases` with this run's intervals")
    waits: dict[str, Wait] | None = Field(default=None, description="by timed phase; null: one rank waits for nobody")
    void_iterations: tuple[Count, ...] | None = Field(
        default=None, description="after the warm-up: skipped steps, or first of a turn of several; null: none told"
    )
    algorithm: str | None = Field(default=None, description="with options that are not its defaults; null: PPO")
    lengths: RealisedLengths | None = Field(default=None, description="null: all samples are of one length")
    padding: Padding | None = Field(default=None, description="null: all samples are of one length, or no counts")
    rollout: Rollout | None = Field(default=None, description="null: nothing is told of generation but its phase")
    staleness: Count | None = Field(
        default=None, description="most updates of weights from generating to training on a sample; null: not told"
    )
    overlap: Overlap | None = Field(default=None, description="null: ranks take turns at both, or no iteration counts")
    memory: Memory | None
    compute: Compute | None
    energy: Energy | None = Field(description="null where nothing was sampled, as on a CPU")
    steady_state: SteadyState
    iterations: Iterations
    turns: Turns | None = Field(default=None, description="null: a run that was alone, as far as its driver tells")
    environment: Environment
    noise: Noise | None = Field(default=None, description="null: no iteration counts")
    validity: Validity | None = Field(default=None, description="null where ``noise`` is")
    predicted: dict[str, JsonValue] | None = Field(default=None, description="filled by a planner")
    notes: tuple[str, ...] = Field(default=(), description="what a reader of the figures must know")
    evidence: Evidence | None = Field(default=None, description="null: more than is hashed")

    @property
    def counted(self) -> tuple[int, ...]:
        """Numbers of the iterations that count: those after the warm-up that are not void."""
        void = frozenset(self.void_iterations or ())
        window = range(self.steady_state.warmup, len(self.iterations.seconds))
        return tuple(index for index in window if index not in void) if void else tuple(window)

    @model_validator(mode="after")
    def _counts_what_it_has(self) -> "Record":
        state, void = self.steady_state, self.void_iterations or ()
        window = range(state.warmup, len(self.iterations.seconds))
        if not set(void).issubset(window) or len(set(void)) != len(void):
            raise ValueError(f"the void iterations are not among those from {window.start} to {window.stop}, each once")
        if state.iterations != len(window) - len(void):
            raise ValueError(f"{state.iterations} of {len(window)} iterations count, of which {len(void)} are void")
        if self.throughput is not None and not (self.counts and state.iterations):
            raise ValueError("a rate needs counts and iterations that count")
        return self
