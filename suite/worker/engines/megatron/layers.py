"""The layers of a policy: Megatron-Core's, with torch's norms and fused attention put in through its spec."""

from typing import Any

import torch

from suite.worker.engines.megatron.attention import FusedAttention
from suite.worker.engines.megatron.native import layer_spec_and_norm
from suite.worker.engines.megatron.stack import TransformerBlockSubmodules, TransformerConfig, get_gpt_layer_local_spec


class LayerNorm(torch.nn.LayerNorm):
    """torch's LayerNorm; Megatron's own wrapper of it refuses sequence parallelism.

    Under sequence parallelism each rank normalises its own positions, so the gradients are summed over tensor ranks:
    Megatron does that to parameters marked ``sequence_parallel``.
    """

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps=eps)
        self.weight.sequence_parallel = config.sequence_parallel
        self.bias.sequence_parallel = config.sequence_parallel


class RMSNorm(torch.nn.RMSNorm):
    """torch's RMSNorm in the place of LayerNorm; also over each head's query and key, whose gradients Megatron sums
    over tensor ranks by the name."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__(hidden_size, eps=eps)
        self.weight.sequence_parallel = config.sequence_parallel


def block_spec(config: TransformerConfig) -> TransformerBlockSubmodules:
    """This stage's layers and the norm behind the last."""
    if config.transformer_impl == "transformer_engine":
        layer, norm = layer_spec_and_norm(config)
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
