"""The layers of a policy: Megatron-Core's, with torch's norms and fused attention put in through its spec.

Without Transformer Engine, Megatron-Core multiplies out all scores and keeps them for the backward pass.
"""

from typing import Any, List, Optional

import torch
import torch.nn.functional as F

from suite.worker.engines.megatron.stack import (
    AttnMaskType,
    DotProductAttention,
    PackedSeqParams,
    TransformerBlockSubmodules,
    TransformerConfig,
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)


class Segments(PackedSeqParams):
    """Samples packed end to end into one row: how long each is. To Megatron's layers the row is one sequence."""

    def __init__(self, lengths: List[int]) -> None:
        super().__init__(qkv_format="sbhd")
        self.lengths = lengths


class FusedAttention(DotProductAttention):
    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Optional[torch.Tensor],
        attn_mask_type: Optional[AttnMaskType] = None,
        packed_seq_params: Optional[Segments] = None,
        **options: Any,
    ) -> torch.Tensor:
        """Queries [s, b, heads, d], keys and values [t, b, groups, d] -> [s, b, heads x d].

        Causal over a whole sequence (s = t), or over each segment of it alone; behind a key-value cache, where Megatron
        says ``no_mask``, the new position sees all t.
        """
        assert attention_mask is None and not any(option is not None for option in options.values())
        causal = attn_mask_type == AttnMaskType.causal
        assert query.size(0) == (key.size(0) if causal else 1), "a part of a sequence needs a mask of its own"
        if packed_seq_params is None:
            return self._attend(query, key, value, causal)
        parts = (tensor.split(packed_seq_params.lengths) for tensor in (query, key, value))
        return torch.cat([self._attend(*segment, causal) for segment in zip(*parts)])

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> torch.Tensor:
        context = F.scaled_dot_product_attention(
            *(tensor.permute(1, 2, 0, 3) for tensor in (query, key, value)),
            is_causal=causal,
            scale=self.softmax_scale,
            enable_gqa=query.size(2) > key.size(2),  # heads that share keys and values read them where they lie
        )
        return context.permute(2, 0, 1, 3).flatten(2)


class LayerNorm(torch.nn.LayerNorm):
    """torch's; Megatron's own wrapper refuses sequence parallelism, in which each rank normalises its own positions.
    The gradients of parameters that are marked ``sequence_parallel`` are summed over tensor ranks."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps=eps)
        self.weight.sequence_parallel = config.sequence_parallel
        self.bias.sequence_parallel = config.sequence_parallel


class RMSNorm(torch.nn.RMSNorm):
    """As ``LayerNorm``; also over each head's query and key, whose gradients Megatron sums by the name."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__(hidden_size, eps=eps)
        self.weight.sequence_parallel = config.sequence_parallel


def block_spec(config: TransformerConfig) -> TransformerBlockSubmodules:
    """This stage's layers and the norm behind the last."""
    if config.transformer_impl == "transformer_engine":
        from megatron.core.extensions.transformer_engine import TENorm as norm  # a stand-in raises where there is none

        layer = get_gpt_layer_with_transformer_engine_spec(qk_layernorm=config.qk_layernorm)
    else:
        norm = RMSNorm if config.normalization == "RMSNorm" else LayerNorm
        layer = _local_layer(config, norm)
    layers = config.num_layers // config.pipeline_model_parallel_size
    return TransformerBlockSubmodules(layer_specs=[layer] * layers, layer_norm=norm)


def _local_layer(config: TransformerConfig, norm: Any) -> Any:
    layer = get_gpt_layer_local_spec(num_experts=config.num_moe_experts, qk_layernorm=config.qk_layernorm)
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = norm
    attention = layer.submodules.self_attention.submodules
    attention.core_attention = FusedAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = norm
    return layer
