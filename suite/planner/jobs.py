"""Many training jobs at once: one array per property, so that predictions are arithmetic on columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from suite.planner.formulas.blocks import matrix_elements

Column = np.ndarray

ARCHITECTURES = ("volta", "ampere", "hopper", "blackwell", "other")
PRECISIONS = ("16 bit", "fp8", "fp4")
#: What the backward pass does again: nothing, unfused attention alone, some operators, everything.
RECOMPUTE = ("none", "selective", "operators", "full")


@dataclass(frozen=True)
class Jobs:
    """Columns of equal length; units are SI, flags are 0 or 1. Every rate is per device and direction.

    ``head_share`` is the share of positions whose logits are computed, ``trained_share`` that of the layers that train.
    """

    layers: Column
    hidden: Column
    ffn: Column
    heads: Column
    kv_heads: Column
    vocab: Column
    gated: Column
    sequence: Column
    global_batch: Column
    micro_batch: Column
    devices: Column
    tensor: Column
    pipeline: Column
    chunks: Column
    context: Column
    zero_stage: Column
    sequence_parallel: Column
    recompute: Column
    precision: Column
    low_rank: Column
    packed: Column
    head_share: Column
    trained_share: Column
    architecture: Column
    peak: Column
    power_share: Column
    fp4_ratio: Column
    memory_bandwidth: Column
    link: Column
    network: Column
    node_devices: Column
    capacity: Column
    fused_attention: Column
    engine: Column
    eager: Column
    asynchronous_tensor: Column
    row_scaling: Column
    zero_engine: Column
    slow_gathers: Column
    offload_optimizer: Column

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def kv_share(self) -> Column:
        return self.kv_heads / self.heads

    @property
    def data(self) -> Column:
        """Data parallel degree, context parallelism not counted."""
        return np.maximum(1, self.devices / (self.tensor * self.pipeline * self.context))

    @property
    def tokens(self) -> Column:
        """Tokens of a micro batch on one context-parallel rank."""
        return self.micro_batch * self.sequence / self.context

    @property
    def elements(self) -> Column:
        """Elements of one block's weight matrices."""
        return matrix_elements(self.hidden, self.ffn, self.kv_share, self.gated)

    def take(self, index: Any) -> "Jobs":
        """The jobs that a mask or a list of positions picks."""
        return Jobs(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]]) -> "Jobs":
        """Columns of rows that hold a number for every property."""
        return cls(**{field.name: np.array([row[field.name] for row in rows], dtype=float) for field in fields(cls)})

    @classmethod
    def alike(cls, common: Mapping[str, float], columns: Mapping[str, Column]) -> "Jobs":
        """Jobs that differ in ``columns`` and agree in ``common``."""
        length = len(next(iter(columns.values())))
        return cls(
            **{
                field.name: np.asarray(columns[field.name], dtype=float)
                if field.name in columns
                else np.full(length, float(common[field.name]))
                for field in fields(cls)
            }
        )
