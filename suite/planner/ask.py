"""What `suite plan` is asked, resolved into names of the catalogues, and the questions that search over many plans."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suite.planner.found import Objective, layouts
from suite.planner.hardware import Hardware, hardware_of
from suite.planner.parameters import Parameters, load_parameters
from suite.planner.plan import Plan, make_plan
from suite.planner.profiles import Profile, find_profile
from suite.planner.space import USUAL, Manner
from suite.spec.base import UsageError
from suite.spec.catalogue import devices as known_devices
from suite.spec.catalogue import find_device
from suite.spec.device import Device
from suite.spec.names import nearest
from suite.spec.shape import Shape
from suite.spec.typed import shown
from suite.spec.workload import Workload

MOST_DEVICES = 16384
#: Micro batches that --max-batch looks at.
_MICRO_BATCHES = [2**power for power in range(11)]
_LONGEST_RANGE = 20
_LARGEST_OF_CLUSTER = 100_000


def cluster_of(node_devices: int | None, nic: float | None, link: float | None) -> dict[str, Any]:
    """What users say of their own machines, as fields of ``Hardware``: from devices of a node, gigabits per second of
    each device's network card, gigabytes per second and direction of its link. Raises UsageError."""
    told = (("--gpus-per-node", node_devices), ("--nic", nic), ("--link", link))
    given = {option: value for option, value in told if value is not None}
    for option, value in given.items():
        if not 0 < value < _LARGEST_OF_CLUSTER:
            raise UsageError(f"{option} is a positive number, not {value:g}")
    fields = {"--gpus-per-node": ("node_devices", 1), "--nic": ("network", 1e9 / 8), "--link": ("link", 1e9)}
    return {name: scale * given[option] for option, (name, scale) in fields.items() if option in given}


@dataclass(frozen=True)
class Question:
    """A model, its work, a device and a backend."""

    shape: Shape
    workload: Workload
    hardware: Hardware
    profile: Profile
    parameters: Parameters
    notes: tuple[str, ...] = ()
    manner: Manner = USUAL
    cluster: Mapping[str, Any] = field(default_factory=dict)
    #: The kind of device that generates, where it is another one, and its price over that of one that trains.
    other: Hardware | None = None
    other_price: float = 1.0
    #: Seconds of a sample: of its reward, one after another, and of waiting for tools, while others decode.
    reward: float = 0.0
    tools: float = 0.0

    def plan(
        self, devices: Sequence[int], objective: Objective = "throughput", price: float | None = None, most: int = 8
    ) -> Plan:
        """The plan for these numbers of devices."""
        checked_counts(devices)
        return make_plan(self, devices, objective, price, most)


def question(
    shape: Shape,
    workload: Workload,
    device: str,
    backend: str,
    parameters: Parameters | None = None,
    manner: Manner = USUAL,
    cluster: Mapping[str, Any] | None = None,
    fp8: bool = False,
) -> Question:
    """Names resolved. Raises UsageError for a device, backend or work that cannot be planned."""
    hardware, note = standing(device, cluster or {}, fp8)
    if workload.sequence_tokens > shape.positions:
        raise UsageError(
            f"{workload.name} has {workload.sequence_tokens} tokens per sample, "
            f"but {shape.name} {shape.positions} positions"
        )
    if workload.trainable_layers is not None and workload.trainable_layers > shape.layers:
        raise UsageError(f"{workload.trainable_layers} trainable layers, but {shape.name} has {shape.layers}")
    profile, known = replace(find_profile(backend), fp8=fp8), parameters or load_parameters()
    notes = (note,) if note else ()
    return Question(shape, workload, hardware, profile, known, notes, engine_manner(profile, manner), cluster or {})


def standing(name: str, cluster: Mapping[str, Any], fp8: bool) -> tuple[Hardware, str | None]:
    """The device of this name in a cluster, and a note of ``named_device``. Raises UsageError for one without a 16-bit
    peak, or without the asked one of fp8."""
    known, note = named_device(name)
    hardware = hardware_of(known)
    if hardware is None:
        raise UsageError(f"the catalogue has no 16-bit peak of {known.name}: its speed cannot be predicted")
    if fp8 and "fp8" not in hardware.peak_by_precision:
        raise UsageError(f"{known.name} has no fp8 peak in the catalogue: leave --fp8 out, or name another device")
    return replace(hardware, **cluster), note


def engine_manner(profile: Profile, manner: Manner) -> Manner:
    """How a backend generates: trainers that have no loop of their own, with an engine that sleeps."""
    return replace(manner, generation="vllm", engine_sleep=True) if profile.engine_only else manner


def named_device(name: str) -> tuple[Device, str | None]:
    """The device of this name, else the one whose name has all of its words, and a note where others have them too.

    Of several the one that is no PCIe or NVL card is taken: ``H100`` is H100-SXM-80GB. UsageError where there is none,
    or where several are left.
    """
    known = find_device(name)
    if known is not None:
        return known, None
    words = set(re.split(r"[\s_-]+", name.strip().upper()))
    matches = [device for device in known_devices().values() if words <= set(device.name.upper().split("-"))]
    cards = [device for device in matches if re.search("PCIE|NVL", device.name.upper())]
    chosen = [device for device in matches if device not in cards] or matches
    if not chosen:
        close = nearest(name, known_devices()) or f"; it has {', '.join(known_devices())}"
        raise UsageError(f"there is no device {name!r} in the catalogue{close}")
    if len(chosen) > 1:
        raise UsageError(f"{name!r} is several devices: {', '.join(device.name for device in matches)}; name one")
    others = [device.name for device in matches if device != chosen[0]]
    note = f"{name} is taken for {chosen[0].name}; others are {', '.join(others)}" if others else None
    return chosen[0], note


def checked_counts(devices: Sequence[int]) -> None:
    """Raises UsageError for numbers of devices that are not looked at."""
    for count in devices:
        if not 1 <= count <= MOST_DEVICES:
            raise UsageError(f"--devices is 1 to {MOST_DEVICES}, not {count}")


def device_counts(limit: int = MOST_DEVICES) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 ... up to the limit: powers of two and three times these."""
    counts = {2**power for power in range(15)} | {3 * 2**power for power in range(13)}
    return sorted(count for count in counts if count <= limit)


def without_offload(asked: Question) -> Question:
    """The same question of layouts that keep everything on the devices."""
    return replace(asked, profile=replace(asked.profile, offload_optimizer=False, offload_parameters=False))


def fewest_devices(asked: Question) -> int | None:
    """The smallest number of devices on which any layout fits; ``None`` where none does up to the limit."""
    return next((count for count in device_counts() if layouts(asked, [count]).told.fits.any()), None)


def largest_micro_batch(asked: Question, devices: int) -> dict[str, int]:
    """The largest micro batch, a power of two, that fits, by layout; the rollouts grow with it where they must."""
    found: dict[str, int] = {}
    for micro in _MICRO_BATCHES:
        rollouts = max(asked.workload.rollouts, micro * asked.workload.optimizer_steps, asked.workload.group)
        work = asked.workload.model_copy(update={"rollouts": rollouts, "micro_batch": micro})
        tried = layouts(replace(asked, workload=work), [devices])
        if not len(tried):
            break
        for index in np.flatnonzero(tried.told.fits & (tried.space.choices["micro_batch"] == micro)):
            found[tried.space.label(int(index))] = micro
    return found


def device_range(text: str) -> list[int]:
    """``8..1024`` as 8, 16, 32 ... 1024: doubled from the first. Raises UsageError for anything else."""
    first, separator, last = text.partition("..")
    if not separator or not first.isdecimal() or not last.isdecimal() or len(text) > _LONGEST_RANGE:
        raise UsageError(f"--scale is a range such as 8..16384, not {shown(text)}")
    count, end = int(first), int(last)
    if not 1 <= count <= end <= MOST_DEVICES:
        raise UsageError(f"--scale goes from 1 to {MOST_DEVICES} at most, not {text}")
    return [count * 2**power for power in range((end // count).bit_length())]
