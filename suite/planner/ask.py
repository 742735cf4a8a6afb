"""What `suite plan` is asked, resolved into names of the catalogues, and the questions that search over many plans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suite.backends.base import unknown_work
from suite.backends.registry import find_backend
from suite.planner.hardware import Hardware, hardware_of
from suite.planner.parameters import Parameters, load_parameters
from suite.planner.plan import Plan, make_plan
from suite.planner.profiles import Profile, find_profile
from suite.planner.space import USUAL, Manner, candidates
from suite.planner.table import Objective, predict
from suite.spec.base import UsageError
from suite.spec.catalogue import devices as known_devices
from suite.spec.catalogue import find_device
from suite.spec.device import Device
from suite.spec.fields import declared
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.names import nearest
from suite.spec.shape import Shape
from suite.spec.typed import shown
from suite.spec.workload import Workload

MOST_DEVICES = 16384
#: Largest micro batch that --max-batch looks at.
_LARGEST_MICRO_BATCH = 1024
_LONGEST_RANGE = 20


@dataclass(frozen=True)
class Question:
    """A model, its work, a device and a backend."""

    shape: Shape
    workload: Workload
    hardware: Hardware
    profile: Profile
    parameters: Parameters
    power_watts: float | None = None
    notes: tuple[str, ...] = ()
    manner: Manner = USUAL

    def plan(
        self, devices: Sequence[int], objective: Objective = "throughput", price: float | None = None, most: int = 8
    ) -> Plan:
        """The plan for these numbers of devices."""
        for count in devices:
            if not 1 <= count <= MOST_DEVICES:
                raise UsageError(f"--devices is 1 to {MOST_DEVICES}, not {count}")
        plan = make_plan(
            self.shape,
            self.workload,
            self.hardware,
            self.profile,
            devices,
            self.parameters,
            objective=objective,
            price=price,
            most=most,
            power_watts=self.power_watts,
            fold_twins=True,
            manner=self.manner,
        )
        best = plan.options[0].layout if plan.options else None
        return plan.model_copy(update={"notes": [*self.notes, *plan.notes, *not_to_be_run(self, best)]})


def question(
    shape: Shape,
    workload: Workload,
    device: str,
    backend: str,
    parameters: Parameters | None = None,
    manner: Manner = USUAL,
) -> Question:
    """Names resolved. Raises UsageError for a device or backend that is not known, or one without a 16-bit peak."""
    known, note = named_device(device)
    hardware = hardware_of(known)
    if hardware is None:
        raise UsageError(f"the catalogue has no 16-bit peak of {known.name}: its speed cannot be predicted")
    if workload.sequence_tokens > shape.positions:
        raise UsageError(
            f"{workload.name} has {workload.sequence_tokens} tokens per sample, "
            f"but {shape.name} {shape.positions} positions"
        )
    if workload.trainable_layers is not None and workload.trainable_layers > shape.layers:
        raise UsageError(f"{workload.trainable_layers} trainable layers, but {shape.name} has {shape.layers}")
    return Question(
        shape,
        workload,
        hardware,
        find_profile(backend),
        parameters or load_parameters(),
        known.power_watts,
        (note,) if note else (),
        manner,
    )


def not_to_be_run(asked: Question, layout: Layout | None) -> list[str]:
    """A note on what the backend lacks of what was planned, or of the best layout."""
    driver = find_backend(asked.profile.name)
    reasons = unknown_work(driver, asked.workload)
    wanted = [name for name in vars(USUAL) if getattr(asked.manner, name) != getattr(USUAL, name)]
    options = dict(declared(Layout))
    reasons += [f"{driver.name} has no {options[name].option}" for name in wanted if name not in driver.settings]
    if layout is not None and not reasons:
        measure = Measure(device="cuda", precision="bf16")
        reasons = driver.errors(asked.shape, asked.workload, layout, measure)
    return [f"this can be planned but not run: {'; '.join(reasons)}"] if reasons else []


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


def device_counts(limit: int = MOST_DEVICES) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 ... up to the limit: powers of two and three times these."""
    counts = {2**power for power in range(15)} | {3 * 2**power for power in range(13)}
    return sorted(count for count in counts if count <= limit)


def without_offload(asked: Question) -> Question:
    """The same question of layouts that keep everything on the devices."""
    return replace(asked, profile=replace(asked.profile, offload_optimizer=False, offload_parameters=False))


def fewest_devices(asked: Question) -> int | None:
    """The smallest number of devices on which any layout fits; ``None`` where none does up to the limit."""
    for count in device_counts():
        space = candidates(asked.shape, asked.workload, asked.hardware, asked.profile, [count], asked.manner)
        if len(space.work.jobs) and predict(space, asked.hardware, asked.profile, asked.parameters).fits.any():
            return count
    return None


def largest_micro_batch(asked: Question, devices: int) -> dict[str, int]:
    """The largest micro batch, a power of two, that fits, by layout; the rollouts grow with it where they must."""
    found: dict[str, int] = {}
    micro = 1
    while micro <= _LARGEST_MICRO_BATCH:
        steps = asked.workload.optimizer_steps
        rollouts = max(asked.workload.rollouts, micro * steps, asked.workload.group)
        work = asked.workload.model_copy(update={"rollouts": rollouts, "micro_batch": micro})
        space = candidates(asked.shape, work, asked.hardware, asked.profile, [devices], asked.manner)
        if not len(space.work.jobs):
            break
        table = predict(space, asked.hardware, asked.profile, asked.parameters)
        for index in np.flatnonzero(table.fits & (space.choices["micro_batch"] == micro)):
            found[space.layout(int(index), 8).label()] = micro
        micro *= 2
    return found


def with_workload(asked: Question, workload: Workload) -> Question:
    """The same question about other work."""
    return replace(asked, workload=workload)


def device_range(text: str) -> list[int]:
    """``8..1024`` as 8, 16, 32 ... 1024: doubled from the first. Raises UsageError for anything else."""
    first, separator, last = text.partition("..")
    if not separator or not first.isdecimal() or not last.isdecimal() or len(text) > _LONGEST_RANGE:
        raise UsageError(f"--scale is a range such as 8..16384, not {shown(text)}")
    count, end = int(first), int(last)
    if not 1 <= count <= end <= MOST_DEVICES:
        raise UsageError(f"--scale goes from 1 to {MOST_DEVICES} at most, not {text}")
    counts = []
    while count <= end:
        counts.append(count)
        count *= 2
    return counts
