"""What of the policy and its reference each device of a layout holds, in parameters and bytes."""

from dataclasses import dataclass

from suite.spec.device import Precision
from suite.spec.layout import Layout
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.adapters import adapter_elements, critic_parameters, expert_adapter_elements, has_value_head
from suite.theory.parameters import layer_matrix_elements, parameter_count

WEIGHT_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
#: Adam's two moments in fp32; in mixed precision also the fp32 copy of the weights (ZeRO, arXiv 1910.02054, 3.1).
OPTIMIZER_BYTES: dict[Precision, int] = {"fp32": 8, "bf16": 12, "fp16": 12}


@dataclass(frozen=True)
class Stage:
    """One pipeline stage before tensor parallelism: parameters, and how many of its blocks train.

    ``trainable`` carry gradients and optimizer states, ``frozen`` and ``reference`` weights alone; the fields after
    ``critic`` tell how many of these sit in experts, which expert parallelism divides. A ``critic`` of its own trains
    whole, when the policy's optimizer step is over. ``reference`` is 0 where the algorithm asks for none.
    """

    first: bool
    last: bool
    layers: int
    trainable_layers: int
    trainable: int
    frozen: int
    reference: int
    critic: int = 0
    trainable_experts: int = 0
    frozen_experts: int = 0
    reference_experts: int = 0


@dataclass(frozen=True)
class States:
    """Bytes on one device that outlive a phase, and the gradients that training adds."""

    weights: int
    reference: int
    optimizer: int
    gradients: int


def stages(size: Shape, workload: Workload, layout: Layout) -> list[Stage]:
    """The pipeline stages of policy and reference; layers in equal parts, the embedding first, the heads last."""
    return [_stage(size, workload, layout.pipeline, index) for index in range(layout.pipeline)]


def _stage(size: Shape, workload: Workload, pipeline: int, index: int) -> Stage:
    count, layers = parameter_count(size), size.layers // pipeline
    first, last = index == 0, index == pipeline - 1
    everything = workload.trainable_layers is None
    first_trained = 0 if workload.trainable_layers is None else size.layers - workload.trainable_layers
    trained = min(layers, max(0, (index + 1) * layers - first_trained))
    ends = (count.embedding + count.positions) * first + count.output_head * last
    # The last stage of a pipeline needs its own copy of a tied embedding; its optimizer states can live with the first.
    copy = count.embedding if last and not first and size.tied_embeddings else 0
    norm = count.final_norm * last
    lora = workload.lora_rank is not None
    beside, experts = (layer_matrix_elements(size), 0) if lora else (0, count.experts_per_layer)
    per_layer = count.per_layer - beside + adapter_elements(size, workload)
    head = count.value_head if has_value_head(workload) else 0
    trainable = trained * per_layer + norm + head * last + (ends if everything else 0)
    critic = critic_parameters(size, workload.critic) * last if workload.critic is not None else 0
    frozen = (layers - trained) * count.per_layer + trained * beside + copy + (0 if everything else ends)
    hydra = workload.reference == "hydra"
    shared = (layers - trained) * count.per_layer + copy + ends if hydra else 0
    reference = layers * count.per_layer + copy + ends + norm - shared if workload.uses_reference else 0
    return Stage(
        first,
        last,
        layers,
        trained,
        trainable,
        frozen,
        reference,
        critic,
        trainable_experts=trained * (experts + expert_adapter_elements(size, workload)),
        frozen_experts=(layers - trained) * count.experts_per_layer + trained * (count.experts_per_layer - experts),
        reference_experts=(trained if hydra else layers) * count.experts_per_layer * workload.uses_reference,
    )


def states(stage: Stage, layout: Layout, precision: Precision, gradients_offload: bool = True) -> States:
    """Bytes of weights, reference, optimizer states and gradients of one device of a stage.

    Tensor parallelism divides everything, as if norms and biases were split too. ZeRO (arXiv 1910.02054, section 5)
    divides the optimizer states from stage 1, the gradients from stage 2 and all weights, the frozen reference among
    them, from stage 3; Megatron's distributed optimizer divides the optimizer states. With ``gradients_offload`` an
    offloaded optimizer takes its gradients along (ZeRO-Offload, arXiv 2101.06840); Megatron's leaves them on the device
    (megatron-core's HybridDeviceOptimizer reads them out of the gradient buffer). Offloaded parameters take the
    reference along. Expert parallelism divides what sits in experts over data parallel ranks; states that are divided
    over these are then divided over the ranks that hold the same experts.
    """
    weight = WEIGHT_BYTES[precision]
    optimizer_shards = layout.data if layout.zero_stage >= 1 or layout.distributed_optimizer else 1
    gradient_shards = layout.data if layout.zero_stage >= 2 else 1
    weight_shards = layout.data if layout.zero_stage >= 3 else 1
    on_device = 0 if layout.offload_parameters else weight
    optimizer_on_device = not layout.offload_optimizer
    gradients_on_device = optimizer_on_device or not gradients_offload
    trained = stage.trainable - stage.trainable_experts
    dense = stage.trainable + stage.frozen - stage.trainable_experts - stage.frozen_experts

    def share(whole: int, experts: int, shards: int) -> int:
        divided = largest_share(experts, layout.tensor, layout.expert, max(1, shards // layout.expert))
        return largest_share(whole, layout.tensor, shards) + divided

    policy_gradients = share(trained, stage.trainable_experts, gradient_shards)
    return States(
        weights=share(dense + stage.critic, stage.trainable_experts + stage.frozen_experts, weight_shards) * on_device,
        reference=share(stage.reference - stage.reference_experts, stage.reference_experts, weight_shards) * on_device,
        optimizer=share(trained + stage.critic, stage.trainable_experts, optimizer_shards)
        * OPTIMIZER_BYTES[precision]
        * optimizer_on_device,
        gradients=max(policy_gradients, share(stage.critic, 0, gradient_shards)) * weight * gradients_on_device,
    )


def decoding_layout(layout: Layout) -> Layout:
    """How the policy is divided where it generates: as it trains, or whole on each rank that generates alone."""
    if layout.placement == "colocated":
        return layout
    return Layout(devices_per_node=layout.generation_ranks, data=layout.generation_ranks)


def largest_share(items: int, *divisors: int) -> int:
    """The largest share when items are split as evenly as can be, one divisor after the other."""
    for divisor in divisors:
        items = -(-items // divisor)
    return items
