"""NeMo-RL in its own image, timed by its own log; experimental, never run."""

from suite.backends.base import OneVersion, laid_out
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload


class NemoRl(OneVersion):
    """Its GRPO example on its DTensor policy (FSDP2) and vLLM, on the same devices in turn, on one node."""

    name = "nemo-rl"
    summary = "NeMo-RL's own GRPO trainer on FSDP2 and vLLM, timed by its own log"
    experimental = "never run"
    families = ("llama", "qwen2", "qwen3")
    algorithms = ("grpo",)
    precisions = ("bf16",)
    rewards = ("constant", "pseudo")
    steps_by_group = True
    #: where its model is drawn
    one_node = True
    extra_work: tuple[str, ...] = ("algorithm", "group")
    settings: tuple[str, ...] = ("recompute", "offload_parameters", "engine_memory")
    packages: tuple[str, ...] = ("torch", "transformers", "ray", "nemo-rl")
    hooked = ("nemo-rl", "0.7.0")
    installation = (
        "NeMo-RL runs in its own image: --launcher docker or a cluster, with the image nemo-rl "
        "(docs/trainers/nemo-rl.md)"
    )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """Every rank holds its share of the model, generates and trains."""
        return laid_out(request, engine="fsdp2", zero_stage=3, generation="vllm", **request.switches(self.settings))

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """What is not mapped to the trainer's configuration."""
        errors = []
        if measure.device != "cuda":
            errors.append("NeMo-RL runs on NVIDIA GPUs only; use --device cuda")
        if workload.ppo_epochs != 1:
            errors.append(f"the nemo-rl backend goes over its samples once, not {workload.ppo_epochs} times")
        return errors

    def variables(self, measure: Measure) -> dict[str, str]:
        """Nothing may leave the machine."""
        return {"WANDB_MODE": "disabled"}
