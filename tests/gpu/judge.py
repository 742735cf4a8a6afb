"""Whether figures that a device gave are what they should be: pure functions, each a list of complaints.

An empty list is a pass. Every complaint holds the figures, because the machine that gave them may be gone by then.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from suite.spec.device import Device

GIB = 1 << 30
#: bf16 has 8 bits of mantissa: what log-probs of a small model may be off before any training
FIRST_ERROR = 0.02
#: and behind a few optimizer steps, in which rounding adds up
LATER_ERROR = 0.15
#: two independent errors of one size differ by it times the root of two
NEARNESS = 1.5
#: of a phase's seconds, by the host's clock against the device's; and what the host may take around any phase
PHASE_SHARE, PHASE_SECONDS = 0.03, 0.003
#: the allocator rounds up to 2 MiB
BLOCK_SLACK_BYTES = 2 << 20
#: NVML counts what the driver keeps for itself, torch does not
DEVICE_SHARE, DEVICE_SLACK_BYTES = 0.02, GIB // 2
ENERGY_SHARE = 0.1
LEAST_CEILING, MOST_CEILING = 0.6, 1.0
#: buffers come and go with offloading; a moment that stays on the device is a third of what should leave it
OFFLOAD_SHARE = 0.2
#: eager and compiled kernels round in another order
FUSED_ERROR = 0.05


def agreement(told: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Steps of ``exact`` (fp32), ``deepspeed`` and ``megatron`` (16 bit) from equal weights and one batch.

    Neither is far from fp32, and they are no farther from each other than rounding takes them from it.
    """
    complaints = []
    runs = zip(told["exact"], told["deepspeed"], told["megatron"], strict=True)
    for index, (exact, first, second) in enumerate(runs):
        limit = LATER_ERROR if index else FIRST_ERROR
        for name in ("logprobs", "values"):
            errors = [_rms(engine[name], exact[name]) for engine in (first, second)]
            apart = _rms(first[name], second[name])
            where = f"step {index}, {name}"
            if not max(errors) <= limit:  # also where it is no number
                complaints.append(f"{where}: {errors[0]:.4f} and {errors[1]:.4f} from fp32, limit {limit}")
            if apart > NEARNESS * max(errors):
                complaints.append(f"{where}: {apart:.4f} apart, but {max(errors):.4f} at most from fp32")
    for name, steps in told.items():
        if _rms(steps[0]["logprobs"], steps[-1]["logprobs"]) < 1e-4:  # equal outputs then prove nothing
            complaints.append(f"{name}: the log-probs did not change in {len(steps)} steps")
    return complaints


def same_steps(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> list[str]:
    """Steps of one engine with and without its compiled kernels."""
    return [
        f"step {index}: log-probs {_rms(one['logprobs'], other['logprobs']):.4f} apart, limit {FUSED_ERROR}"
        for index, (one, other) in enumerate(zip(first, second, strict=True))
        if not _rms(one["logprobs"], other["logprobs"]) <= FUSED_ERROR
    ]


def phase_seconds(told: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> list[str]:
    """Seconds of each phase by the recorder (``told``) and by the device's events inside of it (``own``)."""
    complaints = []
    for phase, device in zip(told, own, strict=True):
        if phase["phase"] != device["phase"]:
            complaints.append(f"{phase['phase']} was told where {device['phase']} ran")
        slack = PHASE_SHARE * device["seconds"] + PHASE_SECONDS
        if not -slack <= phase["seconds"] - device["seconds"] <= slack:
            complaints.append(f"{phase['phase']}: {phase['seconds']:.4f} s, by CUDA events {device['seconds']:.4f} s")
    return complaints if told else ["no phase was told"]


def peaks(told: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]], device_bytes: int) -> list[str]:
    """Each phase's peaks by the probe and by the device itself; ``device_bytes``: all that the device has."""
    slack = {
        "peak_allocated_bytes": 0,
        "peak_reserved_bytes": 0,
        "peak_device_bytes": DEVICE_SHARE * device_bytes + DEVICE_SLACK_BYTES,
        "peak_resident_bytes": BLOCK_SLACK_BYTES,
    }
    complaints = []
    for phase, device in zip(told, own, strict=True):
        for name, expected in device["memory"].items():
            found = phase["memory"][name]
            if found is None or abs(found - expected) > slack[name]:
                complaints.append(f"{phase['phase']}: {name} {found}, the device says {expected}")
    return complaints if told else ["no phase was told"]


def block(rise: int, taken: int) -> list[str]:
    """A peak rises by what was taken and freed again, rounded up."""
    fits = taken <= rise <= taken + BLOCK_SLACK_BYTES
    return [] if fits else [f"the peak rose by {rise} bytes for a block of {taken}"]


def energy(joules: float | None, windows: Sequence[tuple[float, float | None]]) -> list[str]:
    """The counter's joules against mean power times seconds of each window."""
    if joules is None or any(watts is None for _, watts in windows):
        return [f"energy {joules}, power by window {[watts for _, watts in windows]}: not all are known"]
    integrated = sum(seconds * (watts or 0.0) for seconds, watts in windows)
    near = integrated > 0 and abs(joules - integrated) <= ENERGY_SHARE * integrated
    return [] if near else [f"{joules:.0f} J by the counter, {integrated:.0f} J by sampled power"]


def ceilings(told: Mapping[str, Any], device: Device) -> list[str]:
    """The matrix product and the copy reach most of what the data sheet says, and no more."""
    precision = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[told["matmul_dtype"]]
    shares = {
        f"matrix product in {precision}": told["matmul_flops"] / device.peak_flops[precision],
        "copy": told["copy_bytes_per_second"] / device.memory_bytes_per_second,
    }
    return [
        f"{name}: {share:.0%} of what {device.name} should reach"
        for name, share in shares.items()
        if not LEAST_CEILING <= share <= MOST_CEILING
    ]


def offload(plain: Mapping[str, int], offloaded: Mapping[str, int], expected: int) -> list[str]:
    """Bytes held between iterations: the device's fall by what the planner says, the host's rise by as much."""
    fell = plain["device_bytes"] - offloaded["device_bytes"]
    rose = offloaded["host_bytes"] - plain["host_bytes"]
    complaints = []
    if expected <= 0:
        complaints.append(f"the planner expects {expected} bytes to leave the device")
    if abs(fell - expected) > OFFLOAD_SHARE * expected:
        complaints.append(f"the device holds {fell} bytes less, the planner says {expected}")
    if rose < (1 - OFFLOAD_SHARE) * expected:
        complaints.append(f"the host holds {rose} bytes more for {expected} that left the device")
    return complaints


def out_of_memory(record: Mapping[str, Any], phases: Sequence[str]) -> list[str]:
    """The record of a run that cannot fit names the kind and the phase, with a line that proves it."""
    failure = record["failure"] or {}
    found = (record["status"], failure.get("kind"), failure.get("phase"))
    complaints = []
    if found[:2] != ("failed", "oom_device") or found[2] not in phases:
        wanted = f"failed, oom_device, {' or '.join(phases)}"
        complaints.append(f"status, failure kind and phase are {found}; wanted {wanted}")
    if not any("out of memory" in line.lower() for line in failure.get("evidence", ())):
        complaints.append(f"no line proves it: {failure.get('evidence')}")
    return complaints


def _rms(first: Sequence[float], second: Sequence[float]) -> float:
    """Root of the mean squared difference."""
    return math.sqrt(sum((one - other) ** 2 for one, other in zip(first, second, strict=True)) / len(first))
