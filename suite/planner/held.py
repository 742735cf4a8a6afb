"""What each rank of a layout holds of a model, in parameters, as stacks hold them."""

import math

from suite.planner.profiles import Profile
from suite.spec.layout import Layout
from suite.spec.shape import QK_NORM, Shape
from suite.spec.workload import Workload
from suite.theory.adapters import critic_shape
from suite.theory.parameters import layer_matrix_elements, parameter_count, trainable_count, value_head_parameters
from suite.theory.shards import Stage, stages

KINDS = ("trainable", "frozen", "reference", "critic")


def held_parts(
    shape: Shape, workload: Workload, tensor: int, pipeline: int, profile: Profile, expert: int = 1
) -> dict[str, float]:
    """Parameters of one tensor parallel rank on the first and the last stage, by kind (``suite.theory.shards.Stage``).

    Of experts a rank holds its share of ``expert``; ``sharded`` is what trains with all of them, whose optimizer states
    data parallel ranks divide.

    As stacks hold them, which is more than the even share of ``suite.theory``: norms, learned positions and the biases
    of row-parallel products whole on each rank, the vocabulary padded, and on Megatron's last stage a copy of the tied
    embedding that trains like the first stage's.
    """
    layout = Layout(devices_per_node=pipeline, pipeline=pipeline, data=1)
    both = (profile.vocabulary_multiple, tensor)
    multiple = math.prod(both) if profile.pads_each_rank else math.lcm(*both)
    padded = shape.model_copy(update={"vocab": -(-shape.vocab // multiple) * multiple})
    each = stages(padded, workload, layout)
    parts: dict[str, float] = {}
    for end, stage in (("first", each[0]), ("last", each[-1])):
        held = {kind: getattr(stage, kind) for kind in KINDS}
        undivided = _undivided(shape, workload, stage, profile)
        if profile.traits.family == "megatron" and stage.last and not stage.first and workload.trainable_layers is None:
            copy = padded.vocab * shape.hidden if shape.tied_embeddings else 0
            held |= {"trainable": stage.trainable + copy, "frozen": stage.frozen - copy}
        parts |= {
            f"{kind}_{end}": (count - undivided.get(kind, 0)) / tensor + undivided.get(kind, 0)
            for kind, count in held.items()
        }
        parts[f"sharded_{end}"] = parts[f"trainable_{end}"]
        # of one block's experts, what other ranks hold; beside adapters none of them train
        experts = shape.experts.count * (2 + shape.rotary) * shape.hidden * shape.ffn if shape.experts else 0
        elsewhere = (1 - 1 / expert) * experts / tensor
        trained = stage.trainable_layers if workload.lora_rank is None else 0
        parts[f"trainable_{end}"] -= elsewhere * trained
        parts[f"frozen_{end}"] -= elsewhere * (stage.layers - trained)
        if stage.reference:
            shared = stage.layers - stage.trainable_layers if workload.reference == "hydra" else 0
            parts[f"reference_{end}"] -= elsewhere * (stage.layers - shared)
    return parts


def _undivided(shape: Shape, workload: Workload, stage: Stage, profile: Profile) -> dict[str, int]:
    """Parameters of a stage, by kind, that every tensor parallel rank holds whole."""
    count = parameter_count(shape)
    block = 2 * shape.hidden if shape.rotary else 6 * shape.hidden
    block += 2 * shape.head_dim if shape.architecture in QK_NORM else 0
    block += shape.experts.count * shape.hidden if shape.experts else 0  # the router
    norm, ends = count.final_norm * stage.last, count.positions * stage.first
    own_head = workload.uses_values and workload.critic is None
    head = count.value_head * stage.last if own_head and not profile.splits_value_head else 0
    frozen_layers = stage.layers - stage.trainable_layers
    everything = workload.trainable_layers is None
    return {
        "trainable": stage.trainable_layers * block + norm + head + (ends if everything else 0),
        "frozen": frozen_layers * block + (0 if everything else ends),
        "reference": stage.layers * block + norm + ends if workload.reference == "full" and stage.reference else 0,
    }


def trained_weights(shape: Shape, workload: Workload) -> int:
    """Parameters of the language model that train: what a reference in host memory is a copy of."""
    return trainable_count(shape, workload.trainable_layers) - value_head_parameters(shape.hidden)


def critic_share(shape: Shape, workload: Workload) -> float:
    """Matrix elements of a separate critic over the policy's: its share of the work per token."""
    if workload.critic is None:
        return 0.0
    trunk = critic_shape(shape, workload.critic)
    return trunk.layers * layer_matrix_elements(trunk) / (shape.layers * layer_matrix_elements(shape))
