"""What a record is made of: amounts, the noise around a run, and generation beside training."""

from typing import Annotated, Literal

from pydantic import Field

from suite.spec.base import Frozen

#: As events have them: beyond these a number is a mistake, an exabyte or thirty years.
MOST_COUNT, LEAST_SECONDS, MOST_SECONDS = 1 << 60, 1e-9, 1e9
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Bytes = Count
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
_Figure = Annotated[float, Field(ge=0)]


class Peaks(Frozen):
    """Peaks of device (and resident) memory in bytes; null where there is nothing to ask."""

    peak_allocated_bytes: Bytes | None = Field(description="on CPU: resident less what was before the model")
    peak_reserved_bytes: Bytes | None = Field(description="by the caching allocator; null on CPU")
    peak_device_bytes: Bytes | None = Field(description="used on the whole device; null on CPU")
    peak_resident_bytes: Bytes | None = Field(description="resident set of the rank's process in host memory")


class Spread(Frozen):
    """A figure over the counted iterations: the mean over all ranks that tell it, and the worst of them."""

    mean: _Figure
    worst: _Figure
    rank: int = Field(ge=0, description="whose the worst is; of a host's figures the rank that told them")


class ClockRange(Frozen):
    """MHz of the rank whose clock stepped most from one counted iteration to another."""

    lowest: _Figure
    highest: _Figure
    rank: int = Field(ge=0)


class Straggler(Frozen):
    """A rank that came last to the ends of phases by more than 5 % of the iteration."""

    rank: int = Field(ge=0)
    iterations: int = Field(gt=0, description="counted iterations in which it did")
    seconds: _Figure = Field(description="that it came behind the last but one, mean over these iterations")


class Noise(Frozen):
    """What disturbed the counted iterations; each null where no rank tells it."""

    cpu_share: Spread | None = Field(description="CPU over wall time of the thread of the iteration; worst: the least")
    cpus_used: Spread | None = Field(description="CPU seconds per second of a rank's process, all its threads")
    cpu_wait_share: Spread | None = Field(description="of wall time, that this thread waited for a CPU")
    involuntary_switches: Spread | None = Field(description="times that threads lost their CPU, per CPU second")
    major_faults: Spread | None = Field(description="page faults that wait for a disk, per second")
    minor_faults: Spread | None = Field(description="page faults that do not, per second")
    throttled_share: Spread | None = Field(description="of wall time, that a limit on CPU time took; null without one")
    others_cpus: Spread | None = Field(description="CPUs that others used, of those that a host's ranks may run on")
    steal_share: Spread | None = Field(description="of the CPU time a host wanted, what its hypervisor gave to others")
    cpu_pressure_share: Spread | None = Field(description="of wall time, that any task of a host waited for a CPU")
    memory_pressure_share: Spread | None = Field(description="of wall time, that any task of a host waited for memory")
    load: Spread | None = Field(description="of a host in the last minute, at the end of each iteration")
    runnable: Spread | None = Field(description="threads of a host that wanted a CPU at the end of each iteration")
    cpu_mhz: ClockRange | None = Field(description="of the CPU that a rank ran on at the end of each iteration")
    device_mhz: ClockRange | None = Field(description="a GPU's mean clock in each iteration")
    device_temperature: Spread | None = Field(description="a GPU's highest in each iteration, in degrees Celsius")
    device_throttling: tuple[str, ...] = Field(description="what held a GPU's clocks down, by NVML's names")
    device_others: Spread | None = Field(description="other processes that computed on a rank's GPU")
    stragglers: tuple[Straggler, ...] = Field(description="by rank; empty where none is, and of one rank")


class Validity(Frozen):
    """Whether the figures are of this run alone: ``suspect`` where something disturbed it, ``invalid`` where what it
    tells cannot be."""

    status: Literal["valid", "suspect", "invalid"]
    reasons: tuple[str, ...] = Field(description="empty for a valid run")


class OverlapSide(Frozen):
    """One side of a split run, per counted iteration: of each phase the slowest rank of the side."""

    ranks: int = Field(gt=0)
    busy_seconds: Seconds = Field(
        description="in its phases without waiting, no share of an iteration; asynchronous: what a rank of it worked"
    )
    waiting_seconds: Seconds = Field(
        description="training: for samples; generation: beyond its phases; asynchronous: the rest of the period"
    )
    phases: dict[str, Seconds] = Field(description="mean seconds by phase")
    memory: Peaks = Field(description="maximum over the side's ranks")


class OverlapRole(Frozen):
    """Devices with one task in an asynchronous run. A device has one role."""

    ranks: int = Field(gt=0)
    busy_seconds: Seconds = Field(description="that its ranks worked, summed over them, mean per counted iteration")
    busy_share: float = Field(ge=0, le=1, description="of the time that its ranks had")
    idle_share: float = Field(ge=0, le=1, description="the rest of it")


class Overlap(Frozen):
    """Generation beside training, on ranks of its own: of what it takes, what the iteration still shows."""

    exposed_generate_seconds: Seconds = Field(description="that training waited for samples: its phase generate")
    generation_busy_seconds: Seconds = Field(description="that the generation side generated")
    sides: dict[Literal["training", "generation"], OverlapSide]
    roles: dict[str, OverlapRole] | None = Field(default=None, description="asynchronous: over all devices; else null")
    staleness: dict[str, float] | None = Field(
        default=None, description="asynchronous: share of samples by their age in publications; else null"
    )
