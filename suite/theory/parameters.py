"""Exact parameter counts of a shape, by formula."""

from __future__ import annotations

from suite.spec.base import Frozen
from suite.spec.shape import Shape

#: Rows that the OPT family adds to its table of learned positions.
OPT_EXTRA_POSITIONS = 2


class ParameterCount(Frozen):
    """Parameters of the policy by where they sit. ``total`` leaves the value head out."""

    layers: int
    embedding: int
    positions: int
    per_layer: int
    final_norm: int
    output_head: int
    value_head: int

    @property
    def total(self) -> int:
        return self.embedding + self.positions + self.layers * self.per_layer + self.final_norm + self.output_head

    @property
    def with_value_head(self) -> int:
        return self.total + self.value_head


def parameter_count(size: Shape, vocab: int | None = None) -> ParameterCount:
    """Parameters of ``size``, with ``vocab`` rows in place of its own vocabulary where a stack pads it.

    Checked against the Hugging Face models of the three families. ``output_head`` is 0 where it is tied to the
    embedding. Raises ValueError for a vocabulary smaller than the shape's.
    """
    rows = size.vocab if vocab is None else vocab
    if rows < size.vocab:
        raise ValueError(f"a vocabulary of {rows} is smaller than the {size.vocab} of {size.name}")
    return ParameterCount(
        layers=size.layers,
        embedding=rows * size.hidden,
        positions=_positions(size),
        per_layer=_layer(size),
        final_norm=_norm(size),
        output_head=0 if size.tied_embeddings else rows * size.hidden,
        value_head=value_head_parameters(size.hidden),
    )


def value_head_parameters(hidden: int) -> int:
    """Two biased linear layers hidden -> 2 hidden -> 1, as trlx's ``make_head``: 2 h^2 + 4 h + 1."""
    return 2 * hidden * hidden + 4 * hidden + 1


def trainable_count(size: Shape, trainable_layers: int | None) -> int:
    """Parameters that the optimizer updates, value head in.

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
    """Elements of one block's weight matrices, without biases and norms: what each token is multiplied with."""
    key_value = size.kv_heads * size.head_dim
    attention = size.hidden * (2 * size.hidden + 2 * key_value)
    return attention + (3 if size.gated_mlp else 2) * size.hidden * size.ffn


def _positions(size: Shape) -> int:
    if size.architecture == "llama":
        return 0
    extra = OPT_EXTRA_POSITIONS if size.architecture == "opt" else 0
    return (size.positions + extra) * size.hidden


def _layer(size: Shape) -> int:
    if size.architecture == "llama":
        biases = 0
    else:
        biases = size.hidden + 2 * size.kv_heads * size.head_dim + size.hidden + size.ffn + size.hidden
    return layer_matrix_elements(size) + biases + 2 * _norm(size)


def _norm(size: Shape) -> int:
    return size.hidden if size.architecture == "llama" else 2 * size.hidden
