"""TRL's own GRPO and RLOO trainers on Accelerate: on DeepSpeed's ZeRO, on torch's DDP or on FSDP2."""

from __future__ import annotations

from collections.abc import Mapping

from suite.backends.base import BackendKind, OnDeepSpeed, OneVersion, engine_errors
from suite.backends.deepspeed import FAMILIES, zero_layout
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: of TRL: the line of releases whose methods the worker times (docs/trainers/trl.md)
TRL_VERSIONS = ("1.16",)
OLDEST_TRANSFORMERS = 5
_PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "trl", "deepspeed")
#: what DeepSpeed alone has of the settings
_DEEPSPEED_ONLY = {
    "offload_optimizer": "--offload-optimizer",
    "offload_parameters": "--offload-parameters",
    "gather_for_generation": "--gather-for-generation",
}


class _Trl(OneVersion, OnDeepSpeed):
    """Data parallel over all ranks; there is neither tensor nor pipeline parallelism."""

    kind: BackendKind = "trainer"
    takes_turns = True
    packages: tuple[str, ...] = _PACKAGES
    extra_work: tuple[str, ...] = ("algorithm", "group")
    settings: tuple[str, ...] = (
        *("engine", "zero_stage", "recompute", "offload_optimizer", "offload_parameters"),
        *("gather_for_generation", "generation"),
    )
    installation = "`make trl` installs TRL beside the engines (docs/trainers/trl.md)"
    name: str
    algorithm: str

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """On the engine asked for, or on DeepSpeed under the stage asked for or ``zero_layout``'s.

        Under ZeRO-3 weights are gathered once for a whole generation, as TRL does by default, unless somebody chose.
        Raises ValueError where a setting is not that engine's.
        """
        own = {"generation": request.generation or "hf", "recompute": request.recompute}
        if (request.engine or "deepspeed") != "deepspeed":
            _check_engine_settings(request)
            return Layout(
                nodes=request.nodes,
                devices_per_node=request.devices_per_node,
                data=request.ranks,
                engine=request.engine,
                zero_stage=3 if request.engine == "fsdp2" else 0,
                **own,
            )
        layout = zero_layout(size, workload, request, self.settings)
        gathers = request.gather_for_generation
        if gathers is None:
            gathers = layout.zero_stage == 3 and own["generation"] == "hf"
        return Layout.model_validate({**layout.model_dump(), **own, "gather_for_generation": gathers})

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """Beyond divisibility: what TRL cannot do, or would do otherwise than asked."""
        errors = engine_errors(size, measure) + _shape_errors(size) + self._work_errors(workload)
        if layout.tensor > 1 or layout.pipeline > 1:
            errors.append("TRL on Accelerate is data parallel only: tensor and pipeline parallel must be 1")
        if layout.zero_stage == 1 and layout.engine == "deepspeed":
            errors.append("the trl backends run ZeRO stages 0, 2 and 3: choose one with --zero")
        if measure.precision == "fp16":
            errors.append("the trl backends measure fp32 and bf16: choose one with --dtype")
        return errors

    def _work_errors(self, workload: Workload) -> list[str]:
        errors = []
        if workload.algorithm.name != self.algorithm:
            errors.append(
                f"{self.name} runs {self.algorithm}, and workload {workload.name} asks for {workload.algorithm.name}: "
                f"--algorithm {self.algorithm}"
            )
        if workload.reference == "hydra":
            errors.append("TRL's reference is a full copy: --reference full")
        if workload.trainable_layers is not None:
            errors.append("the trl backends train the whole model: leave out --trainable-layers")
        return errors

    def wrong_versions(self, versions: Mapping[str, str | None]) -> list[str]:
        """TRL's methods are timed as one line of releases has them, on a transformers of its time."""
        errors, found, transformers = [], versions.get("trl"), versions.get("transformers")
        if found is not None and ".".join(found.split(".")[:2]) not in TRL_VERSIONS:
            wanted = " or ".join(f"{line}.x" for line in TRL_VERSIONS)
            errors.append(f"the {self.name} backend was made for TRL {wanted}, and finds {found}: {self.installation}")
        if transformers is not None and int(transformers.split(".")[0]) < OLDEST_TRANSFORMERS:
            errors.append(
                f"the {self.name} backend needs transformers {OLDEST_TRANSFORMERS} or later, and finds {transformers}"
            )
        return errors


class TrlGrpo(_Trl):
    """``trl.GRPOTrainer``."""

    name = "trl-grpo"
    algorithm = "grpo"
    summary = "TRL's own GRPO trainer on Accelerate: DeepSpeed ZeRO, DDP or FSDP2 (--engine)"


class TrlRloo(_Trl):
    """``trl.RLOOTrainer``."""

    name = "trl-rloo"
    algorithm = "rloo"
    summary = "TRL's own RLOO trainer on Accelerate: DeepSpeed ZeRO, DDP or FSDP2 (--engine)"


def _check_engine_settings(request: LayoutRequest) -> None:
    foreign = [option for name, option in _DEEPSPEED_ONLY.items() if getattr(request, name)]
    if request.zero_stage is not None:
        foreign.insert(0, "--zero")
    if foreign:
        raise ValueError(f"{', '.join(foreign)}: DeepSpeed's, so not for --engine {request.engine}")


def _shape_errors(size: Shape) -> list[str]:
    """Why no model of this shape is built here."""
    if size.architecture not in FAMILIES:
        families = ", ".join(FAMILIES)
        return [f"the trl backends build {families} models, and {size.name} is of the {size.architecture} family"]
    return []
