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
#: Families that the engine builds (suite/worker/engines/deepspeed/families.py has the same).
FAMILIES = ("gpt2", "llama", "qwen2", "qwen3")


class DeepSpeed(base.BackendDriver):
    """ZeRO shards over data parallel ranks; there is no tensor, pipeline or expert parallelism."""

    name = "deepspeed"
    kind: base.BackendKind = "engine"
    summary = "the suite's PPO iteration on DeepSpeed ZeRO and a Hugging Face model"
    packages: tuple[str, ...] = ("torch", "deepspeed", "transformers")
    oldest_transformers = 5
    families = FAMILIES
    trains_last_layers = has_hydra = True
    extra_work: tuple[str, ...] = ("lora_rank", "critic", "algorithm", "group", "lengths", "prompt_lengths")
    settings: tuple[str, ...] = (
        *("zero_stage", "recompute", "kernels", "gather_for_generation"),
        *("offload_optimizer", "offload_parameters", "packing", "balance", "generation", "engine_sleep"),
        *("engine_memory", "placement", "generation_ranks", "bucket_elements"),
    )

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """``zero_layout``'s; under ZeRO-3 with whole weights to generate, if they leave room and nobody chose."""
        layout = zero_layout(self, size, workload, request)
        if request.gather_for_generation is None and self._gathers(size, workload, layout, request.device_memory_bytes):
            return layout.model_copy(update={"gather_for_generation": True})
        return layout

    @staticmethod
    def _gathers(size: Shape, workload: Workload, layout: Layout, device_memory_bytes: int | None) -> bool:
        """Whether ZeRO-3 generates on whole weights, as under TRL: where the device's memory is known they must fit, in
        16 bit. One rank, which has them whole anyway, says the same as many, so that a scaling curve begins with it."""
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
        return floor + whole <= base.FLOOR_SHARE_OF_DEVICE * device_memory_bytes

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        if size.architecture == "llama" and size.hidden % size.heads:
            return [f"Hugging Face's Llama needs hidden {size.hidden} to be divisible by its {size.heads} heads"]
        return []


def zero_layout(driver: base.BackendDriver, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
    """Under the stage asked for. Else ZeRO-2, or ZeRO-3 to offload parameters, or on several ranks (one would gather
    all from itself) where DeepSpeed-Chat takes it or ZeRO-2's memory floor leaves no room. Raises ValueError."""
    if request.zero_stage == 0 and request.bucket_elements:
        raise ValueError("ZeRO has buckets from stage 1 on: leave out --bucket-elements, or choose another --zero")
    is_large = request.training_ranks > 1 and parameter_count(size).total >= ZERO_3_FROM_PARAMETERS
    layout = driver.laid_out(request, zero_stage=3 if request.offload_parameters or is_large else 2)
    if request.zero_stage is not None or layout.zero_stage == 3 or layout.training_ranks == 1:
        return layout
    # What an engine of its own holds is not counted. Work that does not divide is refused once the layout stands.
    alone = layout.model_copy(update={"generation": "hf", "engine_sleep": False})
    stays = layout_errors(size, workload, alone) or base.has_room(size, workload, alone, request.device_memory_bytes)
    return layout if stays else driver.laid_out(request, zero_stage=3)
