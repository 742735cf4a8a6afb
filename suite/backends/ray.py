"""The trainers on Ray: OpenRLHF, verl, and NeMo-RL, which is experimental and was never run."""

from suite.backends.base import BackendDriver, BackendKind
from suite.backends.deepspeed import FAMILIES, ZERO_3_FROM_PARAMETERS
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.parameters import parameter_count

#: layouts of trainers that shard everything over all ranks, each of which trains and generates
_FSDP2_AND_VLLM = {"engine": "fsdp2", "zero_stage": 3, "generation": "vllm"}


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


class Verl(BackendDriver):
    """Every rank is a device, where a worker of FSDP2 over all of them and a vLLM server of its own take turns."""

    name = "verl"
    kind: BackendKind = "trainer"
    vllm_alone = True
    summary = "verl's own PPO (with a critic) and GRPO trainer on Ray: FSDP2 and vLLM servers"
    #: its vLLM servers look for a model's parts where GPT-2 has none
    families = ("llama", "qwen2", "qwen3")
    algorithms = ("ppo", "grpo")
    #: scores are handed to it before the run
    rewards = ("constant", "pseudo")
    kept_tokens = 3
    steps_by_group = True
    environment = "verl"
    packages: tuple[str, ...] = ("torch", "transformers", "verl", "ray", "TransferQueue", "tensordict")
    hooked = (("verl", "0.9.1"),)
    oldest_transformers = 5
    settings: tuple[str, ...] = ("recompute", "generation", "engine_memory", "sampler")
    usual = _FSDP2_AND_VLLM
    extra_work: tuple[str, ...] = ("algorithm", "group", "critic")
    installation = "`make verl` makes an environment for verl beside the engines' (docs/trainers/verl.md)"


class NemoRl(BackendDriver):
    """Its GRPO example on one node: every rank holds its share of the model (FSDP2), generates (vLLM) and trains."""

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
    usual = _FSDP2_AND_VLLM
    packages: tuple[str, ...] = ("torch", "transformers", "ray", "nemo-rl")
    hooked = (("nemo-rl", "0.7.0"),)
    installation = (
        "NeMo-RL runs in its own image: --launcher docker or a cluster, with the image nemo-rl "
        "(docs/trainers/nemo-rl.md)"
    )

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        if workload.ppo_epochs != 1:
            return [f"the nemo-rl backend goes over its samples once, not {workload.ppo_epochs} times"]
        return []

    def variables(self, measure: Measure) -> dict[str, str]:
        """Nothing may leave the machine."""
        return {"WANDB_MODE": "disabled"}
