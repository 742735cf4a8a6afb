"""What a plan assumes and what nobody has checked, as sentences beside its options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.planner.held import trained_weights
from suite.planner.lengths import SEED
from suite.planner.parameters import Parameters
from suite.planner.space import Manner, Space
from suite.spec.workload import Workload

if TYPE_CHECKING:
    from suite.planner.ask import Question

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


def calibration_notes(parameters: Parameters) -> list[str]:
    """What the user's own runs made of the constants; nothing where there were none."""
    known = parameters.learnt
    if known is None:
        return []
    moved = ", ".join(f"{name} x {factor:.2f}" for name, factor in sorted(parameters.phases.items()))
    return [
        f"calibrated on your runs (runs: {known.runs}, configurations: {known.configurations}), as far as they "
        f"outweigh what was thought before: {moved}, memory x {parameters.memory_factor:.2f}"
    ]


def stack_notes(asked: Question) -> list[str]:
    """Whether published iterations of this stack on this generation of devices are in the fit."""
    known = asked.parameters
    if known.learnt is not None or f"{asked.profile.stack}|{asked.hardware.architecture}" in known.stacks:
        return []
    return [
        f"no published iteration of {asked.profile.name} on {asked.hardware.architecture} devices is in the fit: the "
        "range is as wide as the errors on stacks that no fit had seen (--calibrate on your own runs narrows it)"
    ]


def plan_notes(asked: Question, space: Space, devices: Sequence[int]) -> list[str]:
    notes = ["a prediction, not a measurement: nothing in it was run"]
    notes += stack_notes(asked)
    notes += calibration_notes(asked.parameters)
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
    return notes
