"""TRL's own GRPO, RLOO and PPO trainers on Accelerate: on DeepSpeed's ZeRO, on torch's DDP or on FSDP2."""

from suite.backends.base import BackendDriver, BackendKind
from suite.backends.deepspeed import FAMILIES, zero_layout
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: what DeepSpeed alone has of the settings
_DEEPSPEED_ONLY = ("offload_optimizer", "offload_parameters", "gather_for_generation", "bucket_elements")


class _Trl(BackendDriver):
    """Data parallel over all ranks."""

    kind: BackendKind = "trainer"
    takes_turns = True
    families = FAMILIES
    precisions = ("fp32", "bf16")
    zero_stages: tuple[int, ...] = (0, 2, 3)
    packages: tuple[str, ...] = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "trl", "deepspeed")
    hooked = (("trl", "1.16"),)
    oldest_transformers = 5
    extra_work: tuple[str, ...] = ("algorithm", "group", "lengths")
    settings: tuple[str, ...] = (
        *("engine", "zero_stage", "recompute", "offload_optimizer", "offload_parameters"),
        *("gather_for_generation", "generation", "engine_memory", "bucket_elements"),
    )
    installation = "`make trl` installs TRL beside the engines (docs/trainers/trl.md)"

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """On the engine asked for, or ``zero_layout``'s. Under ZeRO-3 weights are gathered once for a whole generation,
        as TRL does by default, unless somebody chose. Raises ValueError where a setting is not that engine's."""
        if request.engine in ("ddp", "fsdp2"):
            foreign = ["--zero"] if request.zero_stage is not None else []
            foreign += [f"--{name.replace('_', '-')}" for name in _DEEPSPEED_ONLY if getattr(request, name)]
            if foreign:
                raise ValueError(f"{', '.join(foreign)}: DeepSpeed's, so not for --engine {request.engine}")
            return self.laid_out(request, zero_stage=3 if request.engine == "fsdp2" else 0)
        layout = zero_layout(self, size, workload, request)
        if request.gather_for_generation is None and layout.zero_stage == 3 and layout.generation == "hf":
            return layout.model_copy(update={"gather_for_generation": True})
        return layout


class TrlGrpo(_Trl):
    """``trl.GRPOTrainer``."""

    name = "trl-grpo"
    algorithms = ("grpo",)
    summary = "TRL's own GRPO trainer on Accelerate: DeepSpeed ZeRO, DDP or FSDP2 (--engine)"


class TrlRloo(_Trl):
    """``trl.RLOOTrainer``."""

    name = "trl-rloo"
    algorithms = ("rloo",)
    summary = "TRL's own RLOO trainer on Accelerate: DeepSpeed ZeRO, DDP or FSDP2 (--engine)"


class TrlPpo(_Trl):
    """``trl.experimental.ppo.PPOTrainer``. Policy, value model and reference are three models."""

    name = "trl-ppo"
    summary = "TRL's own PPO trainer, in its last release, on Accelerate: DeepSpeed ZeRO or DDP (--engine)"
    environment = "trl-ppo"
    #: the last release with a PPO trainer
    hooked = (("trl", "1.12.0"),)
    oldest_transformers = 0
    zero_stages = (0, 1, 2, 3)
    settings = ("engine", "zero_stage", "gather_for_generation", "offload_optimizer", "bucket_elements")
    extra_work = ("critic",)
    installation = "`make trl-ppo` installs it beside the engines, into an environment of its own"

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        if request.engine == "fsdp2":
            raise ValueError("TRL's PPO trains on deepspeed or ddp, not fsdp2")
        return super().layout(size, workload, request)

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        if workload.global_rollouts(layout.ranks) // layout.data * workload.new_tokens < 2:
            return ["TRL whitens the advantages of a rank's own tokens, and there is one: choose --rollouts"]
        return []
