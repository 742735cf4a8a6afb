"""What this engine cannot do, said before anything is built."""

from typing import Any, Dict, Optional

from suite.worker.engines.megatron import native
from suite.worker.engines.megatron.family import FAMILIES
from suite.worker.world import World


def check(manifest: Dict[str, Any], world: World) -> None:
    """Raises ValueError with the reason."""
    layout, size = manifest["layout"], manifest["size"]
    if manifest["workload"]["reference"] == "hydra":
        raise ValueError("megatron keeps a full reference copy; use reference full")
    if layout["zero_stage"] or layout["offload_parameters"]:
        raise ValueError("ZeRO stages and parameter offload belong to the deepspeed backend")
    if layout["offload_optimizer"] and world.device.type == "cpu":
        raise ValueError("offloading the optimizer to the host means nothing on a CPU")
    if layout["offload_optimizer"] and not layout["distributed_optimizer"]:
        raise ValueError("megatron offloads the optimizer only with the distributed optimizer")
    if layout["offload_optimizer"] and manifest["measure"]["precision"] == "fp32":
        raise ValueError("megatron offloads the optimizer in bf16 and fp16 only: its fp32 shards are no leaf tensors")
    reason = _family_refusal(size, layout)
    if reason is None and layout.get("kernels") == "native":
        reason = native.refusal(world.device, manifest["measure"]["precision"])
    if reason is not None:
        raise ValueError(reason)


def _family_refusal(size: Dict[str, Any], layout: Dict[str, Any]) -> Optional[str]:
    family, experts = size["architecture"], size.get("experts")
    if family not in FAMILIES:
        return "the megatron engine builds no {} shapes, but {}".format(family, ", ".join(FAMILIES))
    if experts and layout["tensor"] > 1:
        return "megatron-core's expert layers need sequence parallelism beside tensor parallelism; use tensor 1"
    if experts and experts.get("normalise", True) and experts["per_token"] == 1:
        return "megatron-core has no router that gives the one expert of a token the whole weight"
    if layout.get("kernels") == "native" and (experts or layout.get("packing")):
        return "native kernels are set up for padded samples and models without experts; use torch kernels"
    return None
