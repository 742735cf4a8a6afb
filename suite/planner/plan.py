"""The answer to `suite plan`: layouts that fit, best first, why the next better one does not, and what is assumed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from suite.backends.base import unknown_work
from suite.backends.registry import find_backend
from suite.planner.found import Found, Objective, layouts
from suite.planner.held import trained_weights
from suite.planner.lengths import SEED
from suite.planner.memory import GIB, PARTS
from suite.planner.option import Option, alike, distinct, label_of, options
from suite.planner.parameters import Band
from suite.planner.space import USUAL, Manner, Space
from suite.spec.base import Frozen
from suite.spec.fields import declared
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.workload import Workload

if TYPE_CHECKING:
    from suite.planner.ask import Question

NOT_RUN = "a prediction, not a measurement: nothing in it was run"
#: Of a reference in host memory both copies stay there between iterations: its own in fp32, the policy's in 16 bit.
SWAP_HOST_BYTES = 4 + 2
#: Layouts that would be better and do not fit, at most so many.
_MISSES = 3


class Miss(Frozen):
    """A layout that would be better and does not fit."""

    label: str
    samples_per_second: float
    missing_bytes: int
    largest_part: str
    text: str


class Plan(Frozen):
    """Options that fit, best first, of everything that was considered."""

    size: str
    backend: str
    device: str
    workload: str
    work: Workload = Field(description="the work that is planned")
    objective: Objective
    considered: int
    fitting: int
    options: list[Option]
    misses: list[Miss]
    nearest: Option | None = Field(description="where nothing fits: what comes closest")
    band: Band = Field(description="of iterations: the one that applies to this stack on this device")
    memory_band: Band
    calibrated: int = Field(default=0, description="configurations of own runs that taught; 0: none")
    notes: list[str]


def make_plan(asked: "Question", devices: Sequence[int], objective: Objective, price: float | None, most: int) -> Plan:
    """Rank every layout of the backend on each number of devices. ``price`` is money per device and hour."""
    found = layouts(asked, devices)
    order, fits, parameters = found.order(objective), found.told.fits, asked.parameters
    fitting = order[fits[order]]
    measure = found.measure(objective)
    ahead = order[~fits[order]]
    if len(fitting):
        ahead = ahead[measure[ahead] < measure[fitting[0]]]
    nearest = None
    if not len(fitting) and len(ahead):
        closest = int(ahead[found.told.memory.total[ahead].argmin()])
        nearest = options(found, [[closest]], price)[0]
    stack, kind = asked.profile.stack, asked.hardware.architecture
    best = options(found, alike(found, distinct(found, fitting), most), price)
    return Plan(
        size=asked.shape.name,
        backend=asked.profile.name,
        device=asked.hardware.name,
        workload=asked.workload.name,
        work=asked.workload,
        objective=objective,
        considered=len(found),
        fitting=len(fitting),
        options=best,
        misses=[_miss(found, group[0]) for group in alike(found, distinct(found, ahead), _MISSES)],
        nearest=nearest,
        band=parameters.band("iteration", stack, kind),
        memory_band=parameters.band("memory", stack, kind),
        calibrated=parameters.learnt.configurations if parameters.learnt else 0,
        notes=_notes(asked, found.space, devices, best[0] if best else None),
    )


def _miss(found: Found, index: int) -> Miss:
    label, total = label_of(found, index), found.told.memory.total
    missing = float(total[index]) - found.asked.hardware.memory_bytes
    memory = {part: float(found.told.memory.parts[part][index]) for part in PARTS}
    largest = max(memory, key=lambda part: memory[part])
    micro = int(found.space.choices["micro_batch"][found.pairs.t[index]])
    return Miss(
        label=label,
        samples_per_second=float(found.rate[index]),
        missing_bytes=int(missing),
        largest_part=largest,
        text=f"{label} (micro batch {micro}) misses by {missing / GIB:.1f} GiB per device: {largest} take "
        f"{memory[largest] / GIB:.1f} GiB",
    )


def fitting_on(asked: "Question", devices: int) -> list[Option]:
    """Layouts that fit this number of devices, best first."""
    found = layouts(asked, [devices])
    return options(found, [[place] for place in distinct(found, found.ranked("throughput"))], None)


def passes_text(manner: Manner) -> str:
    """How samples of uneven lengths go through scoring and training."""
    passes = "laid end to end" if manner.packing else "padded to the longest of each micro batch (--packing: not)"
    dealt = "replicas have equal tokens" if manner.balance else "the replica with most tokens is waited for"
    return f"passes are {passes}; {dealt}"


def stack_notes(asked: "Question") -> list[str]:
    """What the user's own runs made of the constants; else whether published iterations of this stack on this
    generation of devices are in the fit."""
    parameters, known = asked.parameters, asked.parameters.learnt
    if known is not None:
        moved = ", ".join(f"{name} x {factor:.2f}" for name, factor in sorted(parameters.phases.items()))
        return [
            f"calibrated on your runs (runs: {known.runs}, configurations: {known.configurations}), as far as they "
            f"outweigh what was thought before: {moved}, memory x {parameters.memory_factor:.2f}"
        ]
    if f"{asked.profile.stack}|{asked.hardware.architecture}" in parameters.stacks:
        return []
    return [
        f"no published iteration of {asked.profile.name} on {asked.hardware.architecture} devices is in the fit: the "
        "range is as wide as the errors on stacks that no fit had seen (--calibrate on your own runs narrows it)"
    ]


def not_to_be_run(asked: "Question", best: Option | None) -> list[str]:
    """A note on what the backend lacks of what was planned, or of the best option."""
    driver = find_backend(asked.profile.name)
    reasons = unknown_work(driver, asked.workload)
    own = {"generation", "engine_sleep"} if asked.profile.engine_only else set()  # a trainer brings its engine along
    wanted = [name for name in vars(USUAL) if getattr(asked.manner, name) != getattr(USUAL, name) and name not in own]
    known = dict(declared(Layout))
    reasons += [f"{driver.name} has no {known[name].option}" for name in wanted if name not in driver.settings]
    if best is not None and (best.context, best.chunks) != (1, 1):
        reasons.append(f"a run of {driver.name} by the suite has no option for context parallel or interleaved layouts")
    if asked.other is not None:
        reasons.append(f"a run of {driver.name} by the suite has one kind of device")
    if asked.profile.fp8:
        reasons.append(f"a run of {driver.name} by the suite has no option for fp8")
    if best is not None and not reasons:
        measure = Measure(device="cuda", precision="bf16")
        reasons = driver.errors(asked.shape, asked.workload, best.layout, measure)
    return [f"this can be planned but not run: {'; '.join(reasons)}"] if reasons else []


def _notes(asked: "Question", space: Space, devices: Sequence[int], best: Option | None) -> list[str]:
    """All that stands beside a plan."""
    notes, workload = [*asked.notes, NOT_RUN, *stack_notes(asked)], asked.workload
    if asked.profile.swaps_reference and workload.uses_reference:
        held = SWAP_HOST_BYTES * trained_weights(asked.shape, workload)
        notes.append(
            f"{asked.profile.name} keeps an fp32 reference and a copy of the policy in pinned host memory, "
            f"{held / 1e9:.0f} GB for each data parallel replica; the reference phase includes moving them over PCIe"
        )
    if asked.hardware.architecture in ("volta", "other"):
        notes.append(f"no published step time of {asked.hardware.name} is in the fit: its matrix rate is an assumption")
    if workload.uneven and len(space):
        mean, engine = float(space.sample_tokens[0]), space.manner.generation == "vllm"
        rows = "drops samples as they end" if engine else "keeps every row until then"
        notes.append(
            f"lengths as drawn for seed {SEED}: {mean:,.0f} tokens in a mean sample, the longest response "
            f"{space.gen.longest.max():,.0f}, until which a replica decodes ({rows}); {passes_text(space.manner)}"
        )
    if not workload.uses_values:
        reference = "" if workload.uses_reference else " and no reference policy"
        notes.append(f"{workload.algorithm.name} has no value head, no critic{reference}: none is counted")
    if not len(space) and all(workload.global_rollouts(count) % workload.group for count in devices):
        notes.append(f"the samples of an iteration do not divide into groups of {workload.group}: change --rollouts")
    elif not len(space):
        notes.append(f"no layout divides the model and the work on {', '.join(map(str, devices))} devices")
    return notes + not_to_be_run(asked, best)
