"""OpenRLHF: its own trainers of PPO, GRPO and others on Ray, with DeepSpeed and vLLM, synchronous and asynchronous."""

from collections.abc import Mapping

from suite.backends import base
from suite.backends.deepspeed import FAMILIES, ZERO_3_FROM_PARAMETERS
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.parameters import parameter_count


class OpenRlhf(base.OneVersion, base.OnDeepSpeed):
    """Data parallel on one node. Colocated, every device has a part of all models and a vLLM engine of its own; split,
    vLLM has the generation ranks and the other models share the rest, in turn or, with staleness, side by side."""

    name = "openrlhf"
    vllm_alone = True
    summary = "OpenRLHF's own trainers on Ray, DeepSpeed and vLLM, synchronous and asynchronous"
    families = FAMILIES
    algorithms = ("ppo", "grpo", "rloo", "reinforce++")
    kept_tokens = 3
    one_node = True
    packages: tuple[str, ...] = ("torch", "openrlhf", "deepspeed", "transformers", "ray")
    hooked = ("openrlhf", "0.11.2")
    environment = "openrlhf"
    installation = "`make openrlhf` installs OpenRLHF beside the engines, or name its interpreter with --python"
    extra_work: tuple[str, ...] = ("critic", "algorithm", "group", "lengths", "prompt_lengths")
    settings: tuple[str, ...] = (
        *("zero_stage", "recompute", "offload_optimizer", "generation", "engine_sleep", "engine_memory"),
        *("placement", "generation_ranks", "staleness"),
    )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """ZeRO-2, or on several training ranks ZeRO-3 from the size on from which the deepspeed backend takes it."""
        ranks = base.training_ranks(request)
        stage = request.zero_stage
        if stage is None:
            stage = 3 if ranks > 1 and parameter_count(size).total >= ZERO_3_FROM_PARAMETERS else 2
        return base.laid_out(
            request,
            data=ranks,
            zero_stage=stage,
            generation=request.generation or "vllm",
            engine_sleep=bool(request.engine_sleep),
            **base.placed(request),
            **request.switches(self.settings),
        )

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        errors = base.generation_errors(size, layout, measure) + base.placement_errors(layout)
        if measure.precision != "bf16" and (measure.precision, measure.device) != ("fp32", "cpu"):
            errors.append(f"OpenRLHF trains and generates in bf16, not {measure.precision}: --dtype bf16")
        if layout.zero_stage not in (2, 3):
            errors.append(f"openrlhf is measured under ZeRO stage 2 or 3, not {layout.zero_stage}")
        if layout.generation != "vllm":
            errors.append("OpenRLHF generates by vLLM alone: leave out --generation, or --generation vllm")
        if layout.offload_optimizer and measure.device == "cpu":
            errors.append("on a CPU there is nothing to offload the optimizer to")
        if workload.uses_values and layout.placement == "split" and not layout.staleness:
            errors.append(
                "beside vLLM on devices of its own, OpenRLHF's synchronous critic has devices of its own too, for "
                "which there is no layout here: --placement colocated, or --staleness 1"
            )
        return errors

    def versions_errors(self, workload: Workload, layout: Layout, versions: Mapping[str, str]) -> list[str]:
        """vLLM is asked for by the methods that its tested versions have."""
        errors = super().versions_errors(workload, layout, versions)
        known = base.limits()
        found = next((versions[name] for name in known["packages"].values() if name in versions), None)
        if found is not None and ".".join(found.split(".")[:2]) not in known["versions"]:
            errors.append(f"openrlhf is measured with vLLM {' or '.join(known['versions'])}, and {found} is there")
        return errors
