"""DeepSpeed: the suite's PPO iteration on a DeepSpeed engine around a Hugging Face model."""

from __future__ import annotations

from suite.backends.base import BackendKind, engine_errors, has_room, own_worker_argv
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.parameters import parameter_count

#: DeepSpeed-Chat trains 1.3B under ZeRO-2 and 6.7B and up under ZeRO-3; the border lies between them.
ZERO_3_FROM_PARAMETERS = 3_000_000_000


class DeepSpeed:
    """ZeRO shards over data parallel ranks; there is no tensor or pipeline parallelism."""

    name = "deepspeed"
    kind: BackendKind = "engine"
    summary = "the suite's PPO iteration on DeepSpeed ZeRO and a Hugging Face model"
    packages: tuple[str, ...] = ("torch", "deepspeed", "transformers")
    extra_work: tuple[str, ...] = ("lora_rank", "critic")
    settings: tuple[str, ...] = ("zero_stage", "recompute", "offload_optimizer", "offload_parameters")

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """Data parallel over all ranks, under the stage asked for or ``zero_layout``'s."""
        return zero_layout(size, workload, request, self.settings)

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """Beyond divisibility: what the engine cannot do."""
        errors = engine_errors(size, measure)
        if layout.tensor > 1 or layout.pipeline > 1:
            errors.append("the deepspeed backend is data parallel only: tensor and pipeline parallel must be 1")
        return errors

    def variables(self, measure: Measure) -> dict[str, str]:
        """DeepSpeed looks for an accelerator by itself; on a CPU run it must not find the machine's GPU."""
        return {"DS_ACCELERATOR": "cpu"} if measure.device == "cpu" else {}

    def stack_errors(self, python: str) -> list[str]:
        """Its packages are all there is to it."""
        return []

    def worker_argv(self, manifest_path: str, bundle_path: str) -> tuple[str, ...]:
        return own_worker_argv(manifest_path, bundle_path)


def zero_layout(size: Shape, workload: Workload, request: LayoutRequest, settings: tuple[str, ...]) -> Layout:
    """Data parallel; ZeRO-2, or ZeRO-3 to offload parameters, or on several ranks where DeepSpeed-Chat takes it or
    ZeRO-2's memory floor leaves no room.

    On one rank there is nothing to shard: ZeRO-3 would gather each layer from itself for every token.
    """

    def under(stage: int) -> Layout:
        return Layout(
            nodes=request.nodes,
            devices_per_node=request.devices_per_node,
            data=request.ranks,
            zero_stage=stage,
            **request.switches(settings),
        )

    if request.zero_stage is not None:
        return under(request.zero_stage)
    if request.offload_parameters:
        return under(3)
    if request.ranks == 1:
        return under(2)
    if parameter_count(size).total >= ZERO_3_FROM_PARAMETERS:
        return under(3)
    two = under(2)
    # Work that does not divide over the ranks is refused with its reasons once the layout stands.
    stays = layout_errors(size, workload, two) or has_room(size, workload, two, request.device_memory_bytes)
    return two if stays else under(3)
