"""verl's own PPO trainer with a critic, or GRPO: FSDP2, vLLM servers, processes of Ray."""

from __future__ import annotations

from collections.abc import Mapping

from suite.backends.base import BackendKind, OneVersion, engine_errors
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: Ids that the tokenizer keeps for itself: end, unknown and padding.
SPECIAL_TOKENS = 3
#: whose methods the worker times (docs/trainers/verl.md)
VERL_VERSION = "0.9.1"
OLDEST_TRANSFORMERS = 5
#: its vLLM servers look for a model's parts where GPT-2 has none
_FAMILIES = ("llama", "qwen2", "qwen3")
_ALGORITHMS = ("ppo", "grpo")


class Verl(OneVersion):
    """Every rank is a device: for a worker of FSDP2 and a vLLM server of its own, which take turns."""

    name = "verl"
    kind: BackendKind = "trainer"
    vllm_alone = True
    summary = "verl's own PPO (with a critic) and GRPO trainer on Ray: FSDP2 and vLLM servers"
    environment = "verl"
    packages: tuple[str, ...] = ("torch", "transformers", "verl", "ray", "TransferQueue", "tensordict")
    settings: tuple[str, ...] = ("recompute", "generation", "sampler")
    extra_work: tuple[str, ...] = ("algorithm", "group", "critic")
    installation = "`make verl` makes an environment for verl beside the engines' (docs/trainers/verl.md)"

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """FSDP2 shards everything over all ranks. Raises ValueError for another generation than vLLM's."""
        if request.generation not in (None, "vllm"):
            raise ValueError("the verl backend generates with vLLM: --generation vllm, or leave it out")
        return Layout(
            nodes=request.nodes,
            devices_per_node=request.devices_per_node,
            data=request.ranks,
            engine="fsdp2",
            zero_stage=3,
            recompute=request.recompute,
            generation="vllm",
            sampler=request.sampler or "own",
        )

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """Beyond divisibility: what verl cannot do, or would do otherwise than asked."""
        errors = engine_errors(size, measure) + _shape_errors(size) + _work_errors(workload)
        if layout.tensor > 1 or layout.pipeline > 1:
            errors.append("the verl backend is data parallel only: tensor and pipeline parallel must be 1")
        prompts = workload.global_rollouts(layout.ranks) // workload.group
        if prompts % workload.optimizer_steps:
            errors.append(
                f"verl's optimizer steps are of whole groups: {prompts} prompts do not divide into "
                f"{workload.optimizer_steps}"
            )
        return errors

    def wrong_versions(self, versions: Mapping[str, str | None]) -> list[str]:
        """verl's methods are timed as one release has them."""
        errors, found, transformers = [], versions.get("verl"), versions.get("transformers")
        if found is not None and found != VERL_VERSION:
            errors.append(f"the verl backend was made for verl {VERL_VERSION}, and finds {found}: {self.installation}")
        if transformers is not None and int(transformers.split(".")[0]) < OLDEST_TRANSFORMERS:
            errors.append(
                f"the verl backend needs transformers {OLDEST_TRANSFORMERS} or later, and finds {transformers}"
            )
        return errors


def _work_errors(workload: Workload) -> list[str]:
    errors = []
    if workload.algorithm.name not in _ALGORITHMS:
        errors.append(
            f"the verl backend runs {' and '.join(_ALGORITHMS)}, and workload {workload.name} asks for "
            f"{workload.algorithm.name}"
        )
    if workload.reference == "hydra":
        errors.append("verl's reference is a full copy: --reference full")
    if workload.trainable_layers is not None:
        errors.append("the verl backend trains the whole model: leave out --trainable-layers")
    if workload.reward.kind == "token-below":
        errors.append("verl's scores are handed to it before the run: a constant or pseudo reward")
    return errors


def _shape_errors(size: Shape) -> list[str]:
    """Why no model of this shape is built here."""
    if size.architecture not in _FAMILIES:
        return [f"the verl backend builds {', '.join(_FAMILIES)} models, and {size.name} is {size.architecture}"]
    if size.vocab <= SPECIAL_TOKENS:
        return [f"the tokenizer keeps {SPECIAL_TOKENS} tokens for itself, which is all that {size.name} has"]
    return []
