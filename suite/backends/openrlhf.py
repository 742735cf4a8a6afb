"""OpenRLHF: its own trainers of PPO, GRPO and others on Ray, with DeepSpeed and vLLM, synchronous and asynchronous."""

from suite.backends.base import BackendDriver, BackendKind
from suite.backends.deepspeed import FAMILIES, ZERO_3_FROM_PARAMETERS
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.parameters import parameter_count


class OpenRlhf(BackendDriver):
    """Data parallel on one node. Colocated, every device has a part of all models and a vLLM engine of its own; split,
    vLLM has the generation ranks and the other models share the rest, in turn or, with staleness, side by side."""

    name = "openrlhf"
    kind: BackendKind = "trainer"
    vllm_alone = True
    summary = "OpenRLHF's own trainers on Ray, DeepSpeed and vLLM, synchronous and asynchronous"
    families = FAMILIES
    algorithms = ("ppo", "grpo", "rloo", "reinforce++")
    kept_tokens = 3
    zero_stages = (2, 3)
    one_node = True
    packages: tuple[str, ...] = ("torch", "openrlhf", "deepspeed", "transformers", "ray")
    hooked = (("openrlhf", "0.11.2"),)
    environment = "openrlhf"
    installation = "`make openrlhf` installs OpenRLHF beside the engines, or name its interpreter with --python"
    extra_work: tuple[str, ...] = ("critic", "algorithm", "group", "lengths", "prompt_lengths")
    settings: tuple[str, ...] = (
        *("zero_stage", "recompute", "offload_optimizer", "generation", "engine_sleep", "engine_memory"),
        *("placement", "generation_ranks", "staleness"),
    )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """ZeRO-2, or on several training ranks ZeRO-3 from the size on from which the deepspeed backend takes it."""
        is_large = request.training_ranks > 1 and parameter_count(size).total >= ZERO_3_FROM_PARAMETERS
        return self.laid_out(request, zero_stage=3 if is_large else 2, generation="vllm")

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        errors = []
        if measure.precision != "bf16" and (measure.precision, measure.device) != ("fp32", "cpu"):
            errors.append(f"OpenRLHF trains and generates in bf16, not {measure.precision}: --dtype bf16")
        if layout.offload_optimizer and measure.device == "cpu":
            errors.append("on a CPU there is nothing to offload the optimizer to")
        if workload.uses_values and layout.placement == "split" and not layout.staleness:
            errors.append(
                "beside vLLM on devices of its own, OpenRLHF's synchronous critic has devices of its own too, for "
                "which there is no layout here: --placement colocated, or --staleness 1"
            )
        return errors
