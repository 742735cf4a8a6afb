"""DeepSpeed: the suite's PPO iteration on a DeepSpeed engine around a Hugging Face model."""

from suite.backends import base
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors, resolve_work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.memory import memory_floor
from suite.theory.parameters import parameter_count
from suite.theory.shards import WEIGHT_BYTES, stages

#: DeepSpeed-Chat trains 1.3B under ZeRO-2 and 6.7B and up under ZeRO-3; the border lies between them.
ZERO_3_FROM_PARAMETERS = 3_000_000_000
#: Weights are gathered for a whole generation by default only if they and the memory floor of generation leave the rest
#: of the device to what the floor leaves out.
GATHERED_SHARE_OF_DEVICE = 0.7
#: Families that the engine builds (suite/worker/engines/deepspeed/families.py has the same).
FAMILIES = ("gpt2", "llama", "qwen2", "qwen3")


class DeepSpeed(base.OnDeepSpeed):
    """ZeRO shards over data parallel ranks; there is no tensor, pipeline or expert parallelism."""

    name = "deepspeed"
    kind: base.BackendKind = "engine"
    summary = "the suite's PPO iteration on DeepSpeed ZeRO and a Hugging Face model"
    packages: tuple[str, ...] = ("torch", "deepspeed", "transformers")
    oldest_transformers = 5
    extra_work: tuple[str, ...] = ("lora_rank", "critic", "algorithm", "group", "lengths", "prompt_lengths")
    settings: tuple[str, ...] = (
        *("zero_stage", "recompute", "kernels", "gather_for_generation"),
        *("offload_optimizer", "offload_parameters", "packing", "balance", "generation", "engine_sleep"),
        *("engine_memory", "placement", "generation_ranks", "bucket_elements"),
    )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """Data parallel over all ranks, under the stage asked for or ``zero_layout``'s. Under ZeRO-3 generation is on
        whole weights, unless they leave no room or somebody chose."""
        layout = zero_layout(size, workload, request, self.settings)
        own = {"kernels": request.kernels or "torch", "generation": request.generation or "hf"}
        own |= {name: bool(getattr(request, name)) for name in ("gather_for_generation", "engine_sleep")}
        layout = Layout.model_validate({**layout.model_dump(), **own})
        if request.gather_for_generation is None and self._gathers(size, workload, layout, request.device_memory_bytes):
            return layout.model_copy(update={"gather_for_generation": True})
        return layout

    @staticmethod
    def _gathers(size: Shape, workload: Workload, layout: Layout, device_memory_bytes: int | None) -> bool:
        """Whether generation under ZeRO-3 has whole weights, as under TRL, which gathers them always by default.

        Where the device's memory is known they must fit, in 16 bit; a CPU's, or that of an unnamed device, is not.
        One rank has them whole anyway, and says the same as many, so that a scaling curve begins with it.
        """
        others_generate = layout.placement == "split" or layout.generation != "hf"
        if others_generate or layout.zero_stage != 3 or layout.offload_parameters:
            return False
        if device_memory_bytes is None or layout.data == 1 or layout_errors(size, workload, layout):
            return True
        work = resolve_work(size, workload, layout)
        floor = memory_floor(size, workload, work, layout, "bf16").by_phase["generate"]
        policy = stages(size, workload, layout)[0]
        branch = policy.reference if workload.reference == "hydra" else 0
        whole = (policy.trainable + policy.frozen + branch) * WEIGHT_BYTES["bf16"]
        return floor + whole <= GATHERED_SHARE_OF_DEVICE * device_memory_bytes

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        errors = base.engine_errors(size, measure) + family_errors(size) + base.placement_errors(layout)
        if layout.tensor > 1 or layout.pipeline > 1:
            errors.append("the deepspeed backend is data parallel only: tensor and pipeline parallel must be 1")
        return errors


def family_errors(size: Shape) -> list[str]:
    """Why the engine does not build this model; empty when it does."""
    if size.experts is not None:
        return [
            f"the deepspeed backend has no expert parallelism and builds no mixtures of experts, as {size.name} "
            f"({size.architecture}) is: `suite plan --shape` predicts it"
        ]
    if size.architecture not in FAMILIES:
        return [
            f"the deepspeed backend builds {', '.join(FAMILIES)} models, and {size.name} is of the "
            f"{size.architecture} family: --backend trlx-deepspeed measures it, and `suite plan --shape` predicts it"
        ]
    if size.architecture == "llama" and size.hidden % size.heads:
        return [f"Hugging Face's Llama needs hidden {size.hidden} to be divisible by its {size.heads} heads"]
    return []


def zero_layout(size: Shape, workload: Workload, request: LayoutRequest, settings: tuple[str, ...]) -> Layout:
    """Data parallel; ZeRO-2, or ZeRO-3 to offload parameters, or on several ranks where DeepSpeed-Chat takes it or
    ZeRO-2's memory floor leaves no room. On one rank ZeRO-3 would gather each layer from itself for every token."""

    def under(stage: int) -> Layout:
        if stage == 0 and request.bucket_elements:
            raise ValueError("ZeRO has buckets from stage 1 on: leave out --bucket-elements, or choose another --zero")
        return base.laid_out(
            request,
            data=base.training_ranks(request),
            zero_stage=stage,
            **base.placed(request),
            **request.switches(settings),
        )

    if request.zero_stage is not None:
        return under(request.zero_stage)
    if request.offload_parameters:
        return under(3)
    if base.training_ranks(request) == 1:
        return under(2)
    if parameter_count(size).total >= ZERO_3_FROM_PARAMETERS:
        return under(3)
    two = under(2)
    # Work that does not divide over the ranks is refused with its reasons once the layout stands.
    stays = layout_errors(size, workload, two) or base.has_room(size, workload, two, request.device_memory_bytes)
    return two if stays else under(3)
