"""Exact parameter counts of a shape, by formula."""

from suite.spec.base import Frozen
from suite.spec.shape import QK_NORM, Shape

#: Rows that the OPT family adds to its table of learned positions.
OPT_EXTRA_POSITIONS = 2


class ParameterCount(Frozen):
    """Parameters of the policy by where they sit. ``total`` leaves the value head out.

    ``experts_per_layer``: of ``per_layer``, what sits in experts; ``active_experts_per_layer``: of that, what one token
    meets.
    """

    layers: int
    embedding: int
    positions: int
    per_layer: int
    final_norm: int
    output_head: int
    value_head: int
    experts_per_layer: int = 0
    active_experts_per_layer: int = 0

    @property
    def total(self) -> int:
        return self.embedding + self.positions + self.layers * self.per_layer + self.final_norm + self.output_head

    @property
    def with_value_head(self) -> int:
        return self.total + self.value_head

    @property
    def active(self) -> int:
        """Of the total, what one token meets: all but the experts that its router leaves out."""
        return self.total - self.layers * (self.experts_per_layer - self.active_experts_per_layer)


def parameter_count(size: Shape, vocab: int | None = None) -> ParameterCount:
    """Parameters of ``size``, with ``vocab`` rows in place of its own vocabulary where a stack pads it.

    Checked against the Hugging Face models of every family. ``output_head`` is 0 where it is tied to the embedding.
    Raises ValueError for a vocabulary smaller than the shape's.
    """
    rows = size.vocab if vocab is None else vocab
    if rows < size.vocab:
        raise ValueError(f"a vocabulary of {rows} is smaller than the {size.vocab} of {size.name}")
    experts, per_token = (0, 0) if size.experts is None else (size.experts.count, size.experts.per_token)
    return ParameterCount(
        layers=size.layers,
        embedding=rows * size.hidden,
        positions=_positions(size),
        per_layer=layer_matrix_elements(size) + _layer_vectors(size),
        final_norm=_norm(size),
        output_head=0 if size.tied_embeddings else rows * size.hidden,
        value_head=value_head_parameters(size.hidden),
        experts_per_layer=experts * mlp_elements(size),
        active_experts_per_layer=per_token * mlp_elements(size),
    )


def value_head_parameters(hidden: int) -> int:
    """Two biased linear layers hidden -> 2 hidden -> 1, as trlx's ``make_head``: 2 h^2 + 4 h + 1."""
    return 2 * hidden * hidden + 4 * hidden + 1


def trainable_count(size: Shape, trainable_layers: int | None) -> int:
    """Parameters that the optimizer updates, value head in (``has_value_head`` of adapters knows whether there is one).

    ``None``: all. Otherwise the last ``trainable_layers`` blocks, the final norm and the value head; embeddings
    and output head are frozen. Raises ValueError for more layers than the shape has.
    """
    count = parameter_count(size)
    if trainable_layers is None:
        return count.with_value_head
    if not 0 <= trainable_layers <= size.layers:
        raise ValueError(f"{trainable_layers} trainable layers, but {size.name} has {size.layers}")
    return trainable_layers * count.per_layer + count.final_norm + count.value_head


def layer_matrix_elements(size: Shape) -> int:
    """Elements of one block's weight matrices, without biases and norms; those of every expert, and the router's."""
    copies = 1 if size.experts is None else size.experts.count
    return attention_elements(size) + router_elements(size) + copies * mlp_elements(size)


def active_matrix_elements(size: Shape) -> int:
    """Of the elements of one block's weight matrices, those that one token is multiplied with."""
    copies = 1 if size.experts is None else size.experts.per_token
    return attention_elements(size) + router_elements(size) + copies * mlp_elements(size)


def attention_elements(size: Shape) -> int:
    """Elements of the matrices of query, key, value and output; the heads' width need not be hidden / heads."""
    return size.hidden * 2 * (size.query_width + size.key_value_width)


def mlp_elements(size: Shape) -> int:
    """Elements of one MLP's matrices, or of one expert's."""
    return (3 if size.rotary else 2) * size.hidden * size.ffn


def router_elements(size: Shape) -> int:
    """One linear layer without bias from hidden to a score for each expert; 0 without experts."""
    return 0 if size.experts is None else size.hidden * size.experts.count


def _positions(size: Shape) -> int:
    if size.rotary:
        return 0
    extra = OPT_EXTRA_POSITIONS if size.architecture == "opt" else 0
    return (size.positions + extra) * size.hidden


def _layer_vectors(size: Shape) -> int:
    """Biases and norms of one block; Qwen2 has biases on query, key and value, Qwen3 norms of a head's query and key"""
    biases = 0
    if not size.rotary:
        biases = size.hidden + 2 * size.key_value_width + size.hidden + size.ffn + size.hidden
    elif size.architecture == "qwen2":
        biases = size.query_width + 2 * size.key_value_width
    head_norms = 2 * size.head_dim if size.architecture in QK_NORM else 0
    return biases + head_norms + 2 * _norm(size)


def _norm(size: Shape) -> int:
    """RMSNorm has a weight, LayerNorm a bias too."""
    return size.hidden if size.rotary else 2 * size.hidden
