"""Many training jobs at once: one array per property, so that predictions are arithmetic on columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from suite.planner.formulas.blocks import matrix_elements, touched_share

Column = np.ndarray
#: Constants by name; a fit has a column of each.
Values = Mapping[str, Any]

ARCHITECTURES = ("volta", "ampere", "hopper", "blackwell", "other")


@dataclass(frozen=True)
class Jobs:
    """Columns of equal length; units are SI, flags are 0 or 1. Every rate is per device and direction.

    ``precision`` is 0 for 16 bit, 1 for fp8, 2 for fp4; ``recompute`` what the backward pass does again: 0 nothing, 1
    unfused attention alone, 2 some operators, 3 everything.

    ``head_share`` is the share of positions whose logits are computed, ``trained_share`` that of the layers that train.
    ``width`` is heads x head dimension; ``attended`` the positions that a token meets in attention, the mean of squared
    lengths over the mean length; ``tables`` how many vocabulary matrices there are, where two are counted. ``trainer``
    is 1 for the loop of a whole RL trainer, ``plain_model`` for a Hugging Face model that runs eagerly.
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
    host_link: Column
    capacity: Column
    fused_attention: Column
    engine: Column
    eager: Column
    asynchronous_tensor: Column
    row_scaling: Column
    zero_engine: Column
    trainer: Column
    plain_model: Column
    offload_optimizer: Column
    width: Column
    attended: Column
    experts: Column
    experts_per_token: Column
    expert_parallel: Column
    tables: Column

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def megatron(self) -> Column:
        """Whether a job runs in Megatron's recipe; PyTorch FSDP and DeepSpeed have their own."""
        return (self.zero_engine == 0) & (self.zero_stage <= 1)

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
        """Elements of one block's weight matrices, all experts in."""
        return self._elements(self.experts)

    @property
    def active_elements(self) -> Column:
        """Of these, the ones that each token is multiplied with."""
        return self._elements(self.experts_per_token)

    @property
    def expert_elements(self) -> Column:
        """Elements of all experts of one block; 0 where it has one MLP for every token."""
        return np.where(self.experts > 1, self.experts * (2 + self.gated) * self.hidden * self.ffn, 0.0)

    @property
    def local_elements(self) -> Column:
        """Elements of one block that an expert-parallel rank holds, before tensor parallelism."""
        return self.elements - self.expert_elements * (1 - 1 / self.expert_parallel)

    def read_elements(self, tokens: Column) -> Column:
        """Of these, the ones that a pass of ``tokens`` tokens on each expert-parallel rank reads."""
        met = touched_share(tokens * self.expert_parallel, self.experts, self.experts_per_token)
        unread = np.where(self.experts > 1, 1 - met, 0.0)
        return self.local_elements - unread * self.expert_elements / self.expert_parallel

    def _elements(self, mlps: Column) -> Column:
        router = np.where(self.experts > 1, self.hidden * self.experts, 0.0)
        return matrix_elements(self.hidden, self.ffn, self.kv_share, self.gated, self.width, mlps) + router

    def take(self, index: Any) -> "Jobs":
        """The jobs that a mask or a list of positions picks."""
        return Jobs(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    @classmethod
    def alike(cls, common: Mapping[str, float], columns: Mapping[str, Column]) -> "Jobs":
        """Jobs that differ in ``columns`` and agree in ``common``."""
        zero = np.zeros(len(next(iter(columns.values()))))
        every: Mapping[str, Any] = {**common, **columns}
        return cls(**{field.name: zero + every[field.name] for field in fields(cls)})
