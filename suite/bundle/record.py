"""record.json: what a run measured, derived from its bundle and from nothing else (docs/contracts.md)."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from pydantic import BaseModel
from pydantic_core import to_json

from suite.bundle.parts import (
    Count,
    Noise,
    Overlap,
    Part,
    Peaks,
    PositiveSeconds,
    Seconds,
    Share,
    Some,
    Validity,
    means,
)
from suite.launch.outcome import FailureKind
from suite.spec.base import Track
from suite.spec.device import Precision
from suite.spec.layout import Layout
from suite.spec.phases import ALL
from suite.spec.workload import Scaling

RECORD_SCHEMA: Final = "suite/record/1"
#: How the note of a run begins whose counts are of no one number.
NO_WORK = "no rate without its work"
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]

Status = Literal["ok", "failed", "interrupted"]
Verdict = Literal["steady", "drifting", "no steady state"]


class RunFacts(Part, frozen=True):
    """Which execution the record is of; all but the launcher and the times comes from the manifest."""

    id: str
    plan: Annotated[str, means("hash of the request the run belongs to")]
    backend: str
    backend_kind: Literal["engine", "trainer"]
    size: Annotated[str, means("name of the model size")]
    ranks: int
    layout: Layout
    strategy: Annotated[str, means("the layout's label without its data parallel degree")]
    launcher: Annotated[str | None, means("from the driver's launch event; null: it was never launched")]
    repeat: int
    started: Annotated[float | None, means("Unix seconds of the launch, else of the first event of a rank")]
    ended: Annotated[float | None, means("Unix seconds of the driver's end, else of the last event there is")]
    workload: Annotated[str, means("name of the workload")]
    scaling: Scaling
    track: Track
    manifest_hash: str
    work_hash: Annotated[str, means("equal hashes are equal work")]
    device: Literal["cpu", "cuda"]
    precision: Precision


class Failure(Part, frozen=True):
    """Why a run failed, with the lines that prove it."""

    kind: FailureKind
    phase: Annotated[str | None, means("the phase it was in; null: unknown or outside of any")]
    evidence: tuple[str, ...]
    iteration: Annotated[int | None, means("null: unknown, outside of any, or an older bundle")] = None


class Counts(Part, frozen=True):
    """Work of one iteration, global: over all replicas, equal on every rank and in every counted iteration.

    Null is only what a trainer's own log does not tell, where the suite has nothing else to count by.
    """

    samples: Some
    prompt_tokens: Count
    response_tokens: Count
    padded_tokens: Annotated[Count | None, means("positions that hold padding")]
    trained_tokens: Annotated[Count | None, means("positions through forward and backward, summed over PPO epochs")]
    optimizer_steps: Count | None
    trainable_parameters: Annotated[Count | None, means("unpadded, value head in")]
    total_parameters: Annotated[Count | None, means("policy with value head, unpadded")]


class Estimate(Part, frozen=True):
    """A rate per second, or seconds, with the 95 % interval; the bounds are null where one iteration alone was counted,
    and of seconds where all are 0."""

    value: float
    low: float | None
    high: float | None


class Throughput(Part, frozen=True):
    """Total work over total time of the counted iterations."""

    samples_per_second: Estimate
    tokens_per_second: Annotated[Estimate, means("prompt and response tokens")]
    tokens_per_second_per_device: Annotated[Estimate, means("tokens_per_second over ranks")]
    convention: Annotated[str, means("what the tokens and the interval are")]


class Phase(Part, frozen=True):
    """One phase of an iteration: mean over the counted iterations of the slowest rank's own time."""

    seconds: Annotated[Seconds, means("mean seconds per counted iteration")]
    share: Annotated[float | None, means("of the iteration, 1 in all where ranks agree; null: an asynchronous run")]
    tokens_per_second: Annotated[float | None, means("of those that suite.spec.phases declares; null: none, no time")]


if TYPE_CHECKING:

    class Phases(Part, frozen=True):
        """One field for each declared phase (``suite.spec.phases``)."""

        def __init__(self, **phases: Phase | None) -> None: ...

        def __getattr__(self, name: str) -> Phase | None: ...

else:
    Phases = msgspec.defstruct(
        "Phases",
        [(phase.name, Phase | None, None) if phase.optional else (phase.name, Phase | None) for phase in ALL],
        bases=(Part,),
        kw_only=True,
        omit_defaults=True,  # optional phases alone have one
        namespace={"__doc__": "The phases of an iteration; null: the backend does not tell this phase apart."},
    )


class Wait(Part, frozen=True):
    """How long ranks that were done with a phase waited for the slowest: seconds per counted iteration."""

    longest_seconds: Annotated[Seconds, means("of the rank that waited longest in each iteration, mean over them")]
    mean_seconds: Annotated[Seconds, means("mean over ranks and iterations")]


class Floor(Part, frozen=True):
    """The least memory a device needs under this layout: the maximum over phases (suite.theory.memory)."""

    bytes: int
    phase: Annotated[str, means("the phase that needs most")]
    parts: Annotated[dict[str, int], means("bytes of that phase by part")]
    by_phase: Annotated[dict[str, int], means("bytes by phase")]


class Memory(Peaks, frozen=True):
    """Maximum over ranks and counted phases, against the floor; of a split run on the training side."""

    resident_baseline_bytes: Annotated[int | None, means("resident before the model was built, maximum over ranks")]
    theoretical_minimum_bytes: Annotated[int | None, means("floor.bytes")]
    efficiency: Annotated[float | None, means("floor over peak reserved; on CPU over peak allocated")]
    efficiency_allocated: Annotated[float | None, means("floor over peak allocated")]
    by_phase: Annotated[dict[str, Peaks], means("maximum over ranks by phase, setup among them")]
    min_over_ranks: Annotated[Peaks, means("the least loaded rank's peaks")]
    allocation_retries: Annotated[int | None, means("in counted iterations, over ranks; above 0: memory was full")]
    floor: Floor | None


class Compute(Part, frozen=True):
    """Work in FLOPs per iteration, global, and how much of the devices' peak it used."""

    model_flops: float | None
    hardware_flops: Annotated[float | None, means("recomputed work counted")]
    mfu: Annotated[float | None, means("model FLOPs / (seconds x peak x ranks), a ratio")]
    hfu: Annotated[float | None, means("hardware FLOPs / (seconds x peak x ranks), a ratio")]
    mbu: Annotated[float | None, means("bytes read in decoding / (generate seconds x peak bandwidth), a ratio")]
    peak_flops: Annotated[float | None, means("dense FLOP/s of one device at the run's precision; null: unknown")]
    convention: str | None
    hardware_flops_causal: Annotated[
        float | None, means("hardware_flops of what a causal mask leaves, as a fused kernel executes it")
    ] = None
    hfu_causal: Annotated[float | None, means("hardware_flops_causal / (seconds x peak x ranks)")] = None


class Energy(Part, frozen=True):
    """GPU board energy over the counted iterations, summed over ranks, each of which has a device of its own."""

    joules: Annotated[float, Meta(ge=0, le=1e300)] | None
    joules_per_sample: float | None
    valid: bool
    reasons: Annotated[tuple[str, ...], means("why it is not valid; empty when it is")]


class LengthSummary(Part, frozen=True):
    """Tokens of the prompts or of the responses of one iteration; percentiles are lengths that occur."""

    mean: Annotated[float, Meta(gt=0)]
    p50: int
    p90: int
    p99: int
    max: int
    at_cap: Annotated[float | None, means("share of samples at the cap; null: the distribution has none")]


class RealisedLengths(Part, frozen=True):
    """The lengths that the workload's distributions gave, the same in every iteration."""

    prompt: LengthSummary
    response: LengthSummary


class Padding(Part, frozen=True):
    """Positions of padding that went through training with uneven samples, per iteration, global."""

    padded_tokens: Count
    share: Annotated[Share, means("of all positions that went through forward and backward")]
    packed: Annotated[bool, means("samples of a micro batch in one row, end to end")]


class Rollout(Part, frozen=True):
    """Generation over the counted iterations; null: not told."""

    idle_slot_share: Annotated[
        float | None,
        means("of a replica's token steps, those of samples that have ended, 1 - mean / longest; null: even"),
    ]
    idle_slot_seconds: Annotated[Seconds | None, means("from a sample's end to its generation's, mean over all")]
    logprob_difference_mean: Annotated[
        float | None,
        means("between the engine's own log-probs and the policy's, mean over response tokens and iterations"),
    ]
    logprob_difference_max: Annotated[float | None, means("the largest of any rank and iteration")]
    effective_sample_size: Annotated[Share | None, means("of importance weights, as a share of tokens")]


class SteadyState(Part, frozen=True):
    """Whether the counted iterations are of one steady process."""

    verdict: Annotated[Verdict | None, means("null: too few iterations to tell")]
    warmup: Annotated[Count, means("iterations left out at the start, as the manifest says")]
    iterations: Annotated[Count, means("counted iterations")]
    reasons: tuple[str, ...]
    test: Annotated[str, means("the test and its thresholds, in words")]


class Iterations(Part, frozen=True):
    """The raw samples beside the statistics."""

    seconds: Annotated[tuple[PositiveSeconds, ...], means("of all completed ones, slowest rank, warm-up first")]


class Turns(Part, frozen=True):
    """With whom a run took turns by iteration. ``phases`` are the raw samples of ratios within turns."""

    start: Annotated[str, means("the same of all runs that were started together")]
    rows: Annotated[tuple[str, ...], means("ids of these runs, this one among them")]
    begins: Annotated[tuple[int, ...], means("iterations that began a turn; of several the first does not count")]
    phases: Annotated[dict[str, tuple[Seconds, ...]], means("by phase, of all completed iterations, slowest rank")]


class Environment(Part, frozen=True):
    worker: Annotated[dict[str, Any] | None, means("rank 0's facts, as its environment event has them")]
    driver: Annotated[dict[str, Any] | None, means("environment.json")]


class Evidence(Part, frozen=True):
    """The files that the record was derived from, and all others of the bundle but itself (docs/evidence.md)."""

    digest: Annotated[_Digest, means("SHA-256 over the list of the files")]
    files: Annotated[Count, means("how many they are")]


class Record(Part, frozen=True, kw_only=True):
    """One run's measurements: rates per second, seconds, bytes. Null is what is unknown, or came after the bundle."""

    schema_: Literal["suite/record/1"] = msgspec.field(default=RECORD_SCHEMA, name="schema")
    run: RunFacts
    status: Status
    failure: Failure | None
    counts: Annotated[Counts | None, means("per iteration; null where none was completed")]
    throughput: Annotated[Throughput | None, means("null where no iteration after the warm-up was completed")]
    phases: Phases | None
    details: Annotated[
        dict[str, Seconds] | None,
        means("mean seconds by `phase/part` of the rank that took longest; null: none are told"),
    ] = None
    phase_intervals: Annotated[dict[str, Estimate] | None, means("`phases` with this run's intervals")] = None
    waits: Annotated[dict[str, Wait] | None, means("by timed phase; null: one rank waits for nobody")] = None
    void_iterations: Annotated[
        tuple[Count, ...] | None,
        means("after the warm-up: skipped steps, or first of a turn of several; null: none told"),
    ] = None
    algorithm: Annotated[str | None, means("with options that are not its defaults; null: PPO")] = None
    lengths: Annotated[RealisedLengths | None, means("null: all samples are of one length")] = None
    padding: Annotated[Padding | None, means("null: all samples are of one length, or no counts")] = None
    rollout: Annotated[Rollout | None, means("null: nothing is told of generation but its phase")] = None
    staleness: Annotated[
        Count | None, means("most updates of weights from generating to training on a sample; null: not told")
    ] = None
    overlap: Annotated[Overlap | None, means("null: ranks take turns at both, or no iteration counts")] = None
    memory: Memory | None
    compute: Compute | None
    energy: Annotated[Energy | None, means("null where nothing was sampled, as on a CPU")]
    steady_state: SteadyState
    iterations: Iterations
    turns: Annotated[Turns | None, means("null: a run that was alone, as far as its driver tells")] = None
    environment: Environment
    noise: Annotated[Noise | None, means("null: no iteration counts")] = None
    validity: Annotated[Validity | None, means("null where ``noise`` is")] = None
    predicted: Annotated[dict[str, Any] | None, means("filled by a planner")] = None
    notes: Annotated[tuple[str, ...], means("what a reader of the figures must know")] = ()
    evidence: Annotated[Evidence | None, means("null: more than is hashed")] = None

    @property
    def counted(self) -> tuple[int, ...]:
        """Numbers of the iterations that count: those after the warm-up that are not void."""
        void = frozenset(self.void_iterations or ())
        window = range(self.steady_state.warmup, len(self.iterations.seconds))
        return tuple(index for index in window if index not in void) if void else tuple(window)

    def __post_init__(self) -> None:
        state, void = self.steady_state, self.void_iterations or ()
        window = range(state.warmup, len(self.iterations.seconds))
        if not set(void).issubset(window) or len(set(void)) != len(void):
            raise ValueError(f"the void iterations are not among those from {window.start} to {window.stop}, each once")
        if state.iterations != len(window) - len(void):
            raise ValueError(f"{state.iterations} of {len(window)} iterations count, of which {len(void)} are void")
        if self.throughput is not None and not (self.counts and state.iterations):
            raise ValueError("a rate needs counts and iterations that count")


def plain(value: Any) -> Any:
    """A record, or anything made of parts of it, as JSON has it: objects, lists, texts and numbers."""
    return msgspec.to_builtins(value, enc_hook=_foreign)


def as_record(body: Any) -> Record:
    """Of parsed JSON. Raises msgspec.ValidationError, a ValueError, for what is no record."""
    return msgspec.convert(body, Record, dec_hook=_model)


def text_of(record: Record) -> str:
    """The text of record.json."""
    return to_json(plain(record), indent=2).decode() + "\n"


def _foreign(value: Any) -> Any:
    """Of what is no type of msgspec's: a layout, and NumPy's numbers, which are floats."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else float(value)


def _model(kind: type[BaseModel], body: Any) -> BaseModel:
    return kind.model_validate(body)


# msgspec looks at types when it first reads them, and crashes where threads do that at one time: here only one does
msgspec.json.Decoder(Record, dec_hook=_model)
