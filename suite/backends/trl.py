"""TRL's own GRPO, RLOO and PPO trainers on Accelerate: on DeepSpeed's ZeRO, on torch's DDP or on FSDP2."""

from suite.backends.base import OnDeepSpeed, OneVersion, laid_out
from suite.backends.deepspeed import FAMILIES, zero_layout
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: what DeepSpeed alone has of the settings
_DEEPSPEED_ONLY = ("offload_optimizer", "offload_parameters", "gather_for_generation", "bucket_elements")


class _Trl(OneVersion, OnDeepSpeed):
    """Data parallel over all ranks."""

    takes_turns = True
    families = FAMILIES
    precisions = ("fp32", "bf16")
    packages: tuple[str, ...] = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "trl", "deepspeed")
    hooked = ("trl", "1.16")
    oldest_transformers = 5
    extra_work: tuple[str, ...] = ("algorithm", "group", "lengths")
    settings: tuple[str, ...] = (
        *("engine", "zero_stage", "recompute", "offload_optimizer", "offload_parameters"),
        *("gather_for_generation", "generation", "engine_memory", "bucket_elements"),
    )
    installation = "`make trl` installs TRL beside the engines (docs/trainers/trl.md)"

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """On the engine asked for, or on DeepSpeed under the stage asked for or ``zero_layout``'s.

        Under ZeRO-3 weights are gathered once for a whole generation, as TRL does by default, unless somebody chose.
        Raises ValueError where a setting is not that engine's.
        """
        own = {"generation": request.generation or "hf", "recompute": request.recompute}
        if (request.engine or "deepspeed") != "deepspeed":
            _check_engine_settings(request)
            return laid_out(request, engine=request.engine, zero_stage=3 if request.engine == "fsdp2" else 0, **own)
        layout = zero_layout(size, workload, request, self.settings)
        gathers = request.gather_for_generation
        if gathers is None:
            gathers = layout.zero_stage == 3 and own["generation"] == "hf"
        return Layout.model_validate({**layout.model_dump(), **own, "gather_for_generation": gathers})

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """What TRL would do otherwise than asked."""
        if layout.zero_stage == 1 and layout.engine == "deepspeed":
            return ["the trl backends run ZeRO stages 0, 2 and 3: choose one with --zero"]
        return []


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
    hooked = ("trl", "1.12.0")
    oldest_transformers = 0
    settings = ("engine", "zero_stage", "gather_for_generation", "offload_optimizer", "bucket_elements")
    extra_work = ("critic",)
    installation = "`make trl-ppo` installs it beside the engines, into an environment of its own"

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """The same, but for FSDP2."""
        if request.engine == "fsdp2":
            raise ValueError("TRL's PPO trains on deepspeed or ddp, not fsdp2")
        return super().layout(size, workload, request)

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        if workload.global_rollouts(layout.ranks) // layout.data * workload.new_tokens < 2:
            return ["TRL whitens the advantages of a rank's own tokens, and there is one: choose --rollouts"]
        return []


def _check_engine_settings(request: LayoutRequest) -> None:
    foreign = [f"--{name.replace('_', '-')}" for name in _DEEPSPEED_ONLY if getattr(request, name)]
    if request.zero_stage is not None:
        foreign.insert(0, "--zero")
    if foreign:
        raise ValueError(f"{', '.join(foreign)}: DeepSpeed's, so not for --engine {request.engine}")
