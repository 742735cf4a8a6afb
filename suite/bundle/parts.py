"""What a record is made of: amounts, the noise around a run, and generation beside training."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

#: As events have them: beyond these a number is a mistake, an exabyte or thirty years.
MOST_COUNT, LEAST_SECONDS, MOST_SECONDS = 1 << 60, 1e-9, 1e9
Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
Bytes = Count
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
PositiveSeconds = Annotated[float, Meta(ge=LEAST_SECONDS, le=MOST_SECONDS)]
Share = Annotated[float, Meta(ge=0, le=1)]
_Figure = Annotated[float, Meta(ge=0)]
_Rank = Annotated[int, Meta(ge=0)]
Some = Annotated[int, Meta(gt=0, le=MOST_COUNT)]


def means(text: str) -> Meta:
    """What a field is."""
    return Meta(description=text)


class Part(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A record, or what is within it. Bounds of its fields hold for what was read, not for what is being made."""


class Peaks(Part, frozen=True):
    """Peaks of device (and resident) memory in bytes; null where there is nothing to ask."""

    peak_allocated_bytes: Annotated[Bytes | None, means("on CPU: resident less what was before the model")]
    peak_reserved_bytes: Annotated[Bytes | None, means("by the caching allocator; null on CPU")]
    peak_device_bytes: Annotated[Bytes | None, means("used on the whole device; null on CPU")]
    peak_resident_bytes: Annotated[Bytes | None, means("resident set of the rank's process in host memory")]


class Spread(Part, frozen=True):
    """A figure over the counted iterations: the mean over all ranks that tell it, and the worst of them."""

    mean: _Figure
    worst: _Figure
    rank: Annotated[_Rank, means("whose the worst is; of a host's figures the rank that told them")]


class ClockRange(Part, frozen=True):
    """MHz of the rank whose clock stepped most from one counted iteration to another."""

    lowest: _Figure
    highest: _Figure
    rank: _Rank


class Straggler(Part, frozen=True):
    """A rank that came last to the ends of phases by more than 5 % of the iteration."""

    rank: _Rank
    iterations: Annotated[Some, means("counted iterations in which it did")]
    seconds: Annotated[_Figure, means("that it came behind the last but one, mean over these iterations")]


class Noise(Part, frozen=True):
    """What disturbed the counted iterations; each null where no rank tells it."""

    cpu_share: Annotated[Spread | None, means("CPU over wall time of the thread of the iteration; worst: the least")]
    cpus_used: Annotated[Spread | None, means("CPU seconds per second of a rank's process, all its threads")]
    cpu_wait_share: Annotated[Spread | None, means("of wall time, that this thread waited for a CPU")]
    involuntary_switches: Annotated[Spread | None, means("times that threads lost their CPU, per CPU second")]
    major_faults: Annotated[Spread | None, means("page faults that wait for a disk, per second")]
    minor_faults: Annotated[Spread | None, means("page faults that do not, per second")]
    throttled_share: Annotated[Spread | None, means("of wall time, that a limit on CPU time took; null without one")]
    others_cpus: Annotated[Spread | None, means("CPUs that others used, of those that a host's ranks may run on")]
    steal_share: Annotated[Spread | None, means("of the CPU time a host wanted, what its hypervisor gave to others")]
    cpu_pressure_share: Annotated[Spread | None, means("of wall time, that any task of a host waited for a CPU")]
    memory_pressure_share: Annotated[Spread | None, means("of wall time, that any task of a host waited for memory")]
    load: Annotated[Spread | None, means("of a host in the last minute, at the end of each iteration")]
    runnable: Annotated[Spread | None, means("threads of a host that wanted a CPU at the end of each iteration")]
    cpu_mhz: Annotated[ClockRange | None, means("of the CPU that a rank ran on at the end of each iteration")]
    device_mhz: Annotated[ClockRange | None, means("a GPU's mean clock in each iteration")]
    device_temperature: Annotated[Spread | None, means("a GPU's highest in each iteration, in degrees Celsius")]
    device_throttling: Annotated[tuple[str, ...], means("what held a GPU's clocks down, by NVML's names")]
    device_others: Annotated[Spread | None, means("other processes that computed on a rank's GPU")]
    stragglers: Annotated[tuple[Straggler, ...], means("by rank; empty where none is, and of one rank")]


class Validity(Part, frozen=True):
    """Whether the figures are of this run alone: ``suspect`` where something disturbed it, ``invalid`` where what it
    tells cannot be."""

    status: Literal["valid", "suspect", "invalid"]
    reasons: Annotated[tuple[str, ...], means("empty for a valid run")]


class OverlapSide(Part, frozen=True):
    """One side of a split run, per counted iteration: of each phase the slowest rank of the side."""

    ranks: Some
    busy_seconds: Annotated[
        Seconds,
        means("in its phases without waiting, no share of an iteration; asynchronous: what a rank of it worked"),
    ]
    waiting_seconds: Annotated[
        Seconds, means("training: for samples; generation: beyond its phases; asynchronous: the rest of the period")
    ]
    phases: Annotated[dict[str, Seconds], means("mean seconds by phase")]
    memory: Annotated[Peaks, means("maximum over the side's ranks")]


class OverlapRole(Part, frozen=True):
    """Devices with one task in an asynchronous run. A device has one role."""

    ranks: Some
    busy_seconds: Annotated[Seconds, means("that its ranks worked, summed over them, mean per counted iteration")]
    busy_share: Annotated[Share, means("of the time that its ranks had")]
    idle_share: Annotated[Share, means("the rest of it")]


class Overlap(Part, frozen=True):
    """Generation beside training, on ranks of its own: of what it takes, what the iteration still shows."""

    exposed_generate_seconds: Annotated[Seconds, means("that training waited for samples: its phase generate")]
    generation_busy_seconds: Annotated[Seconds, means("that the generation side generated")]
    sides: dict[Literal["training", "generation"], OverlapSide]
    roles: Annotated[dict[str, OverlapRole] | None, means("asynchronous: over all devices; else null")] = None
    staleness: Annotated[
        dict[str, float] | None, means("asynchronous: share of samples by their age in publications; else null")
    ] = None
