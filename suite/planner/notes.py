"""What a plan assumes and what nobody has checked, as sentences beside its options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.backends.base import unknown_work
from suite.backends.registry import find_backend
from suite.planner.held import trained_weights
from suite.planner.lengths import SEED
from suite.planner.option import Option
from suite.planner.space import USUAL, Manner, Space
from suite.spec.fields import declared
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.workload import Workload

if TYPE_CHECKING:
    from suite.planner.ask import Question

NOT_RUN = "a prediction, not a measurement: nothing in it was run"
#: Of a reference in host memory both copies stay there between iterations: its own in fp32, the policy's in 16 bit.
SWAP_HOST_BYTES = 4 + 2


def passes_text(manner: Manner) -> str:
    """How samples of uneven lengths go through scoring and training."""
    passes = "laid end to end" if manner.packing else "padded to the longest of each micro batch (--packing: not)"
    dealt = "replicas have equal tokens" if manner.balance else "the replica with most tokens is waited for"
    return f"passes are {passes}; {dealt}"


def _work_notes(space: Space, workload: Workload) -> list[str]:
    """What is assumed of uneven lengths and of the algorithm."""
    notes = []
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
    return notes


def stack_notes(asked: Question) -> list[str]:
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


def not_to_be_run(asked: Question, best: Option | None) -> list[str]:
    """A note on what the backend lacks of what was planned, or of the best option."""
    driver = find_backend(asked.profile.name)
    reasons = unknown_work(driver, asked.workload)
    own = {"generation", "engine_sleep"} if asked.profile.engine_only else set()  # a trainer brings its engine along
    wanted = [name for name in vars(USUAL) if getattr(asked.manner, name) != getattr(USUAL, name) and name not in own]
    options = dict(declared(Layout))
    reasons += [f"{driver.name} has no {options[name].option}" for name in wanted if name not in driver.settings]
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


def plan_notes(asked: Question, space: Space, devices: Sequence[int], best: Option | None) -> list[str]:
    """All that stands beside a plan."""
    notes = [*asked.notes, NOT_RUN, *stack_notes(asked)]
    workload = asked.workload
    if asked.profile.swaps_reference and workload.uses_reference:
        held = SWAP_HOST_BYTES * trained_weights(asked.shape, workload)
        notes.append(
            f"{asked.profile.name} keeps an fp32 reference and a copy of the policy in pinned host memory, "
            f"{held / 1e9:.0f} GB for each data parallel replica; the reference phase includes "
            "moving them over PCIe"
        )
    if asked.hardware.architecture in ("volta", "other"):
        notes.append(f"no published step time of {asked.hardware.name} is in the fit: its matrix rate is an assumption")
    notes += _work_notes(space, workload)
    if not len(space) and all(workload.global_rollouts(count) % workload.group for count in devices):
        notes.append(f"the samples of an iteration do not divide into groups of {workload.group}: change --rollouts")
    elif not len(space):
        notes.append(f"no layout divides the model and the work on {', '.join(map(str, devices))} devices")
    return notes + not_to_be_run(asked, best)
