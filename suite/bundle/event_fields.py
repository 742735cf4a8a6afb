"""What each kind of event must hold (docs/contracts.md): the one place of these rules.

msgspec decodes a line and checks its types and bounds at once. What types cannot say is in ``__post_init__``. Fields
that are not named here are left aside, so that later versions may write more.
"""

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from suite.bundle.parts import LEAST_SECONDS, MOST_COUNT, MOST_SECONDS
from suite.launch.outcome import FailureKind
from suite.spec.phases import TIMED_NAMES

#: Whose clock an event's seconds are of, where it is not the suite's own.
TRAINER = "trainer"
#: A share, or a mean beside its greatest part, may be above it by so much.
_ROUNDING = 1e-6
#: Rates are made of what was told of noise, so no figure of it is all but 0.
_LEAST_FIGURE = 1e-10
_FIGURES = frozenset((float, type(None)))

# Of each type its bounds, and what it is.
Count = Annotated[int, Meta(ge=0, le=MOST_COUNT, description="a whole number from 0")]
Some = Annotated[int, Meta(ge=1, le=MOST_COUNT)]
Moment = Annotated[float, Meta(ge=0, lt=1e11, description="Unix seconds")]
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS, description="a number of seconds from 0")]
IterationSeconds = Annotated[float, Meta(ge=LEAST_SECONDS, le=MOST_SECONDS, description="a number of seconds above 0")]
Number = Annotated[float, Meta(gt=-1e30, lt=1e30)]
Figure = Annotated[float, Meta(ge=0, le=1e12)]
ExitCode = Annotated[int, Meta(gt=-(1 << 31), lt=1 << 31)]
#: How many publications old a sample is, and what an asynchronous trainer's devices do.
_Age = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,8})\Z")]
_RoleName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,39}\Z")]

if TYPE_CHECKING:
    WorkerPhase = str
    MemoryPhase = str
else:
    WorkerPhase = Literal[tuple(sorted(TIMED_NAMES))]
    #: Memory of a whole iteration is told as that of ``other``, where phases are known from a trainer's log alone.
    MemoryPhase = Literal[tuple(sorted({*TIMED_NAMES, "setup", "other"}))]


class Work(Struct, gc=False):
    """The counts of an iteration; null only where a trainer's own log does not tell."""

    samples: Some
    prompt_tokens: Count
    response_tokens: Some
    padded_tokens: Count | None
    trained_tokens: Count | None
    optimizer_steps: Count | None
    trainable_parameters: Count | None
    total_parameters: Count | None


class Role(Struct, gc=False):
    """What the devices of one role did in a period of an asynchronous trainer."""

    ranks: Some
    busy_seconds: Seconds


class Period(Struct, gc=False):
    """``staleness``: samples by how many publications old they were."""

    publication: Count
    staleness: dict[_Age, Count]
    roles: Annotated[dict[_RoleName, Role], Meta(min_length=1, max_length=64)]


class Together(Struct, gc=False):
    """Who was started together, to take turns: the rows are named, each once."""

    start: Annotated[str, Meta(min_length=1, max_length=100)]
    rows: Annotated[list[str], Meta(min_length=1, max_length=1000)]


_COUNTS = f"an object of whole numbers {' '.join(Work.__struct_fields__)}, or of nulls that a trainer's log leaves"
_ROLLOUT = "an object of numbers from 0 or nulls, no mean above its maximum, an effective sample size up to 1"
_NOISE = "an object of numbers from 0 or nulls, with one such object as host"


class Event(Struct, tag_field="kind", kw_only=True, gc=False, omit_defaults=True):
    """What every event has. ``rank`` is null in those of the driver."""

    rank: int | None
    time: Moment
    seq: int


class Launch(Event, tag="launch", kw_only=True, gc=False):
    schema: str
    launcher: str
    ranks: Count
    turns: Together | None = None

    def __post_init__(self) -> None:
        if self.turns is not None and len(set(self.turns.rows)) < len(self.turns.rows):
            raise ValueError("Expected each row once - at `$.turns`")


class Failed(Event, tag="failure", kw_only=True, gc=False):
    failure: FailureKind
    phase: str | None
    iteration: Count | None
    evidence: list[str]


class DriverEnd(Event, tag="end", kw_only=True, gc=False):
    status: Literal["failed", "interrupted", "ok"]
    exit_codes: Annotated[list[ExitCode | None] | dict[str, ExitCode | None], Meta(description="exit codes by rank")]
    elapsed_seconds: Seconds


class Start(Event, tag="start", kw_only=True, gc=False):
    schema: str
    world_size: Count
    manifest_hash: str
    host: str
    suite_version: str
    resident_bytes: Count | None


class Environment(Event, tag="environment", kw_only=True, gc=False):
    facts: dict[str, Any]


class Phase(Event, tag="phase", kw_only=True, gc=False):
    iteration: Count
    phase: WorkerPhase
    seconds: Seconds
    wait_seconds: Seconds
    source: Literal["trainer"] | None = None


class Memory(Event, tag="memory", kw_only=True, gc=False):
    iteration: Count | None
    phase: MemoryPhase
    peak_allocated_bytes: Count | None
    peak_reserved_bytes: Count | None
    peak_device_bytes: Count | None
    peak_resident_bytes: Count | None
    allocation_retries: Count | None


class Iteration(Event, tag="iteration", kw_only=True, gc=False):
    iteration: Count
    seconds: IterationSeconds
    counts: Annotated[Work, Meta(description=_COUNTS)]
    stats: Annotated[dict[str, Number | None], Meta(description="an object of numbers or nulls")]
    details: Annotated[dict[str, Seconds], Meta(description="an object of seconds by part")] | None = None
    skipped_steps: Count | None = None
    rollout: Annotated[dict[str, Number | None], Meta(description=_ROLLOUT)] | None = None
    staleness: Count | None = None
    asynchronous: Period | None = None
    own_timers: Annotated[dict[str, Seconds], Meta(description="an object of seconds by timer")] | None = None
    source: Literal["trainer"] | None = None
    noise: Annotated[dict[str, Figure | dict[str, Figure | None] | None], Meta(description=_NOISE)] | None = None
    device: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.source != TRAINER and None in msgspec.structs.astuple(self.counts):
            raise ValueError(f"Expected {_COUNTS} - at `$.counts`")
        if self.rollout is not None and not _is_rollout(self.rollout):
            raise ValueError(f"Expected {_ROLLOUT} - at `$.rollout`")
        if self.noise is not None and not _is_noise(self.noise):
            raise ValueError(f"Expected {_NOISE} - at `$.noise`")


class Turn(Event, tag="turn", kw_only=True, gc=False):
    iteration: Count


class Heartbeat(Event, tag="heartbeat", kw_only=True, gc=False):
    iteration: Count | None
    phase: MemoryPhase
    calls: Count
    doing: str | None = None


class RankEnd(Event, tag="end", kw_only=True, gc=False):
    status: Literal["failed", "ok"]
    iterations: Count


#: Writer -> kind -> what it must hold.
_OF_DRIVER: tuple[type[Event], ...] = (Launch, Failed, DriverEnd)
_OF_RANK = (Start, Environment, Phase, Memory, Iteration, Turn, Heartbeat, Failed, RankEnd)
FIELDS: dict[str, dict[str, type[Event]]] = {
    writer: {str(kind.__struct_config__.tag): kind for kind in kinds}
    for writer, kinds in (("driver", _OF_DRIVER), ("rank", _OF_RANK))
}


def kind_of(event: Event) -> str:
    return str(event.__struct_config__.tag)


def is_moment(value: Any) -> bool:
    """Unix seconds of any time that a clock could show."""
    return type(value) in (int, float) and 0 <= value < 1e11


def is_shown(event: dict[str, Any]) -> bool:
    """Whether an event that a rank prints is one that a bundle may hold; only those are shown while it runs."""
    kind = FIELDS["rank"].get(event["kind"])
    return kind is not None and wrong_field(event, kind) is None


def wrong_field(event: dict[str, Any], kind: type[Event]) -> str | None:
    """What is wrong with parsed JSON as an event of this kind, in words; null where nothing is."""
    try:
        msgspec.json.decode(json.dumps(event), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return words_of(error, event)
    return None


def words_of(error: Exception, event: dict[str, Any]) -> str:
    """What reading an event found, with the value of the field in which it was."""
    words, _, place = str(error).partition(" - at ")
    field = re.search(r"\$\.(\w+)", place)
    if field is None:
        return words
    value = event.get(field[1])
    text = ascii(value) if not isinstance(value, (dict, list)) or len(value) < 100 else f"a {type(value).__name__}"
    return f"{field[1]} is {text if len(text) <= 80 else f'{text[:77]}...'}: {words}"


def _is_rollout(known: dict[str, float | None]) -> bool:
    """Of the figures that are known what they can be; of others that they are numbers."""
    least, most = known.get("logprob_difference_mean"), known.get("logprob_difference_max")
    seconds, size = known.get("idle_slot_seconds"), known.get("effective_sample_size")
    return (
        all(part is None or part >= 0 for part in (least, most, seconds))
        and (seconds is None or seconds <= MOST_SECONDS)
        and (size is None or 0 <= size <= 1 + _ROUNDING)
        and (least is None or most is None or least <= most * (1 + _ROUNDING) + _ROUNDING)
    )


def _is_noise(known: dict[str, Any]) -> bool:
    """Of a rank, and of its host where it tells that."""
    host = known.get("host")
    if host is not None and type(host) is not dict:
        return False
    figures = [*{**known, "host": None}.values(), *(host or {}).values()]
    return _FIGURES.issuperset(map(type, figures)) and all(part >= _LEAST_FIGURE for part in figures if part)
