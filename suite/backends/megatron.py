"""Megatron-Core: the suite's PPO iteration on a Megatron GPT model."""

from collections.abc import Mapping
from contextlib import suppress

from suite.backends import base
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors
from suite.spec.shape import Shape
from suite.spec.workload import Workload

_DEGREES = [1, 2, 4, 8, 16]


class Megatron(base.BackendDriver):
    """Tensor, pipeline, sequence and data parallel with a distributed optimizer."""

    name = "megatron"
    kind: base.BackendKind = "engine"
    summary = "the suite's PPO iteration on Megatron-Core"
    packages: tuple[str, ...] = ("torch", "megatron-core")
    native_packages: tuple[str, ...] = ("transformer-engine",)
    settings: tuple[str, ...] = (
        *("tensor", "pipeline", "sequence_parallel", "distributed_optimizer", "recompute", "offload_optimizer"),
        *("kernels", "expert", "packing", "balance", "generation", "engine_sleep", "engine_memory", "placement"),
        *("generation_ranks", "bucket_elements"),
    )
    extra_work: tuple[str, ...] = ("algorithm", "group", "lengths", "prompt_lengths")
    families = ("gpt2", "llama", "qwen2", "qwen3", "mixtral", "qwen3_moe")
    trains_last_layers = True

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """Data parallel as far as the model fits: the smallest tensor degree whose memory floor leaves room, or expert
        degree, since expert layers are not split by tensor degrees. Where weights cross to ranks that generate, no
        degree is chosen: these take whole parameters."""
        degrees = [1] if request.placement == "split" else _DEGREES
        tensors = [request.tensor] if request.tensor else [1] if size.experts else degrees
        experts = [request.expert] if request.expert else degrees if size.experts else [1]
        choices = [(tensor, expert) for tensor in tensors for expert in experts]
        if len(choices) == 1:
            return self._with_degrees(request, *choices[0], workload)
        layouts = []
        for tensor, expert in choices:
            if tensor == request.tensor or request.devices_per_node % tensor == 0:
                with suppress(ValueError):  # the ranks do not divide into these degrees
                    layouts.append(self._with_degrees(request, tensor, expert, workload))
        possible = [layout for layout in layouts if not layout_errors(size, workload, layout)]
        for layout in possible:
            if base.has_room(size, workload, layout, request.device_memory_bytes):
                return layout
        return (possible or [self._with_degrees(request, tensors[0], experts[0], workload)])[-1]

    def _with_degrees(self, request: LayoutRequest, tensor: int, expert: int, workload: Workload) -> Layout:
        sequence = tensor > 1 and (workload.uneven or workload.sequence_tokens % tensor == 0)
        usual = {"sequence_parallel": sequence, "distributed_optimizer": True}
        return self.laid_out(request, tensor=tensor, expert=expert, **usual)

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        errors, experts, is_native = [], size.experts, layout.kernels == "native"
        if experts and layout.tensor > 1:
            errors.append(
                "megatron-core's expert layers take tensor parallelism only with sequence parallelism, which decoding "
                "token by token cannot have: spread the experts with --ep and leave --tp at 1"
            )
        if experts and experts.normalise and experts.per_token == 1:
            errors.append("megatron-core has no router that gives the one expert of a token the whole weight")
        if layout.offload_optimizer and (measure.device == "cpu" or measure.precision == "fp32"):
            errors.append("megatron offloads the optimizer on GPUs, of bf16 and fp16 training: no --offload-optimizer")
        if layout.bucket_elements and (measure.device == "cpu" or layout.data == 1):
            errors.append("Megatron has buckets where replicas are reduced in backward, on GPUs: no --bucket-elements")
        if is_native and (measure.device == "cpu" or measure.precision == "fp32"):
            errors.append(
                "native kernels are Transformer Engine's, in bf16 and fp16 on CUDA devices alone: use --kernels torch"
            )
        if is_native and (experts or layout.packing):
            errors.append("native kernels are for models without experts, without packing: use --kernels torch")
        return errors

    def versions_errors(self, workload: Workload, layout: Layout, versions: Mapping[str, str]) -> list[str]:
        if layout.kernels == "torch" or "transformer-engine" in versions or "megatron-core" not in versions:
            return []
        return ["native kernels need transformer-engine beside megatron-core; install it there, or use torch kernels"]

    def variables(self, measure: Measure) -> dict[str, str]:
        """One hardware queue keeps communication and computation in the order that Megatron's overlap relies on."""
        return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if measure.device == "cuda" else {}
