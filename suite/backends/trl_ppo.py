"""TRL's own PPO trainer: ``trl-ppo`` on DeepSpeed's engine or torch's DDP."""

from suite.backends.base import OnDeepSpeed, OneVersion, laid_out
from suite.backends.deepspeed import FAMILIES, zero_layout
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload


class TrlPpo(OneVersion, OnDeepSpeed):
    """Data parallel over all ranks. Policy, value model and reference are three models."""

    name = "trl-ppo"
    takes_turns = True
    summary = "TRL's own PPO trainer, in its last release, on Accelerate: DeepSpeed ZeRO or DDP (--engine)"
    families = FAMILIES
    precisions = ("fp32", "bf16")
    environment = "trl-ppo"
    packages: tuple[str, ...] = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "deepspeed", "trl")
    #: the last release with a PPO trainer
    hooked = ("trl", "1.12.0")
    settings: tuple[str, ...] = (
        *("engine", "zero_stage", "gather_for_generation", "offload_optimizer", "bucket_elements"),
    )
    extra_work: tuple[str, ...] = ("critic",)
    installation = "`make trl-ppo` installs it beside the engines, into an environment of its own"

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """On DeepSpeed under the stage asked for or ``zero_layout``'s, or on DDP.

        Under ZeRO-3 weights are gathered once for a whole generation, as TRL does by default, unless somebody chose.
        Raises ValueError where a setting is not that engine's, or the engine is none of TRL's PPO.
        """
        if request.engine in (None, "deepspeed"):
            layout = zero_layout(size, workload, request, self.settings)
            gathers = layout.zero_stage == 3 if request.gather_for_generation is None else request.gather_for_generation
            return Layout.model_validate({**layout.model_dump(), "gather_for_generation": gathers})
        if request.engine != "ddp":
            raise ValueError(f"TRL's PPO trains on deepspeed or ddp, not {request.engine}")
        if request.zero_stage is not None or any(getattr(request, name) for name in self.settings[2:]):
            raise ValueError("ZeRO and what comes with it are DeepSpeed's, so not for --engine ddp")
        return laid_out(request, engine="ddp")

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """Beyond what is declared."""
        if workload.global_rollouts(layout.ranks) // layout.data * workload.new_tokens < 2:
            return ["TRL whitens the advantages of a rank's own tokens, and there is one: choose --rollouts"]
        return []
