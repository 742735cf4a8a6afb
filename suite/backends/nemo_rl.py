"""NeMo-RL in its own image, timed by its own log; experimental, never run."""

from __future__ import annotations

from collections.abc import Mapping

from suite.backends.base import BackendKind, OneVersion
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: Its version whose log is known by its names.
_VERSION = "0.7.0"
_FAMILIES = ("llama", "qwen2", "qwen3")
_REWARDS = ("constant", "pseudo")


class NemoRl(OneVersion):
    """Its GRPO example on its DTensor policy (FSDP2) and vLLM, on the same devices in turn, on one node."""

    name = "nemo-rl"
    kind: BackendKind = "trainer"
    image = "nemo-rl"
    summary = "NeMo-RL's own GRPO trainer on FSDP2 and vLLM, timed by its own log"
    #: What `suite backends`, `suite doctor`, the report and the documentation say of it.
    experimental = "never run"
    extra_work: tuple[str, ...] = ("algorithm", "group")
    settings: tuple[str, ...] = ("recompute", "offload_parameters")
    packages: tuple[str, ...] = ("torch", "transformers", "ray", "nemo-rl")
    #: How to get the stack, for doctor and refusals.
    installation = (
        "NeMo-RL runs in its own image: --launcher docker or a cluster, with the image nemo-rl "
        "(docs/trainers/nemo-rl.md)"
    )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """Every rank holds its share of the model, generates and trains."""
        return Layout(
            nodes=request.nodes,
            devices_per_node=request.devices_per_node,
            data=request.ranks,
            engine="fsdp2",
            zero_stage=3,
            generation="vllm",
            **request.switches(self.settings),
        )

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """What is not mapped to the trainer's configuration, each with what to do."""
        return [*_place_errors(layout, measure), *_model_errors(size), *_work_errors(workload, layout)]

    def wrong_versions(self, versions: Mapping[str, str | None]) -> list[str]:
        """The log of one version is known by its names."""
        found = versions.get("nemo-rl")
        if found is None or found.partition("+")[0] == _VERSION:  # a build may add its commit
            return []
        return [f"the nemo-rl backend reads the log of NeMo-RL {_VERSION}, and finds {found}"]

    def variables(self, measure: Measure) -> dict[str, str]:
        """Nothing may leave the machine."""
        return {"WANDB_MODE": "disabled"}


def _place_errors(layout: Layout, measure: Measure) -> list[str]:
    errors = []
    if measure.device != "cuda":
        errors.append("NeMo-RL runs on NVIDIA GPUs only; use --device cuda")
    if measure.precision != "bf16":
        errors.append(f"the nemo-rl backend trains in bf16, not {measure.precision}; use --dtype bf16")
    if layout.nodes > 1:
        errors.append("the nemo-rl backend runs on one node, where its model is drawn; use --nodes 1")
    if layout.tensor > 1 or layout.pipeline > 1:
        errors.append("the nemo-rl backend is data parallel here: tensor and pipeline parallel must be 1")
    return errors


def _model_errors(size: Shape) -> list[str]:
    if size.architecture in _FAMILIES:
        return []
    known = ", ".join(_FAMILIES)
    return [f"the nemo-rl backend runs {known} models; {size.name} is of the {size.architecture} family"]


def _work_errors(workload: Workload, layout: Layout) -> list[str]:
    errors = []
    if workload.algorithm.name != "grpo":
        errors.append(
            f"the nemo-rl backend runs grpo, and workload {workload.name} asks for {workload.algorithm.name}: "
            "--algorithm grpo"
        )
    if workload.ppo_epochs != 1:
        errors.append(f"the nemo-rl backend goes over its samples once, not {workload.ppo_epochs} times")
    if workload.trainable_layers is not None:
        errors.append("the nemo-rl backend trains the whole model: leave out --trainable-layers")
    if workload.reference != "full":
        errors.append("the reference of the nemo-rl backend is a full copy: --reference full")
    if workload.reward.kind not in _REWARDS:
        errors.append(f"the nemo-rl backend knows the rewards {', '.join(_REWARDS)}, not {workload.reward.kind}")
    prompts = workload.global_rollouts(layout.ranks) // workload.group
    if prompts % workload.optimizer_steps:
        errors.append(
            f"{prompts} prompts do not divide into {workload.optimizer_steps} optimizer steps, whose samples NeMo-RL "
            "takes by the prompt; choose another --rollouts or --group"
        )
    return errors
