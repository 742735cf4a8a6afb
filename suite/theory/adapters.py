"""Low-rank adapters and the separate critic: what a workload puts beside the policy's own parameters.

LoRA: Hu et al., arXiv 2106.09685. An adapter of rank r beside a matrix in -> out has r (in + out) elements; query, key
and value have one each, whether or not the stack keeps their matrices in one, and so has every expert; a router has
none.
"""

from suite.spec.shape import Shape
from suite.spec.workload import Critic, Workload
from suite.theory.parameters import parameter_count


def has_value_head(workload: Workload) -> bool:
    """Whether the policy has a head that gives values: where they are learned, and not by a critic of its own."""
    return workload.uses_values and workload.critic is None


def adapter_elements(size: Shape, workload: Workload) -> int:
    """Elements of the adapters of one block; 0 without LoRA."""
    return _adapters(size, workload, attention=True, mlps=1 if size.experts is None else size.experts.count)


def active_adapter_elements(size: Shape, workload: Workload) -> int:
    """Of these, those that one token is multiplied with."""
    return _adapters(size, workload, attention=True, mlps=1 if size.experts is None else size.experts.per_token)


def expert_adapter_elements(size: Shape, workload: Workload) -> int:
    """Of the adapters of one block, those beside experts."""
    return _adapters(size, workload, attention=False, mlps=0 if size.experts is None else size.experts.count)


def _adapters(size: Shape, workload: Workload, attention: bool, mlps: int) -> int:
    if workload.lora_rank is None:
        return 0
    beside_attention = 2 * (size.hidden + size.query_width) + 2 * (size.hidden + size.key_value_width)
    beside_mlp = (3 if size.rotary else 2) * (size.hidden + size.ffn)
    return workload.lora_rank * (attention * beside_attention + mlps * beside_mlp)


def critic_shape(size: Shape, critic: Critic) -> Shape:
    """The critic's trunk as a shape: the policy's vocabulary and positions, embeddings tied to nothing."""
    return Shape(
        name="critic",
        layers=critic.layers,
        hidden=critic.hidden,
        ffn=critic.ffn,
        heads=critic.heads,
        kv_heads=critic.heads,
        vocab=size.vocab,
        positions=size.positions,
    )


def critic_parameters(size: Shape, critic: Critic) -> int:
    """The trunk, and one linear layer hidden -> 1 without bias."""
    return parameter_count(critic_shape(size, critic)).total + critic.hidden
