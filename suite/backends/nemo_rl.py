"""NeMo-RL in its own image, timed by its own log; experimental, never run."""

from suite.backends.base import FSDP2_AND_VLLM, BackendDriver, BackendKind
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload


class NemoRl(BackendDriver):
    """Its GRPO example on its DTensor policy (FSDP2) and vLLM, on the same devices in turn, on one node: every rank
    holds its share of the model, generates and trains."""

    name = "nemo-rl"
    kind: BackendKind = "trainer"
    summary = "NeMo-RL's own GRPO trainer on FSDP2 and vLLM, timed by its own log"
    experimental = "never run"
    families = ("llama", "qwen2", "qwen3")
    algorithms = ("grpo",)
    precisions = ("bf16",)
    rewards = ("constant", "pseudo")
    steps_by_group = True
    #: one node: where its model is drawn
    one_node = on_gpus_only = True
    extra_work: tuple[str, ...] = ("algorithm", "group")
    settings: tuple[str, ...] = ("recompute", "offload_parameters", "engine_memory")
    usual = FSDP2_AND_VLLM
    packages: tuple[str, ...] = ("torch", "transformers", "ray", "nemo-rl")
    hooked = (("nemo-rl", "0.7.0"),)
    installation = (
        "NeMo-RL runs in its own image: --launcher docker or a cluster, with the image nemo-rl "
        "(docs/trainers/nemo-rl.md)"
    )

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """What is not mapped to the trainer's configuration."""
        if workload.ppo_epochs != 1:
            return [f"the nemo-rl backend goes over its samples once, not {workload.ppo_epochs} times"]
        return []

    def variables(self, measure: Measure) -> dict[str, str]:
        """Nothing may leave the machine."""
        return {"WANDB_MODE": "disabled"}
