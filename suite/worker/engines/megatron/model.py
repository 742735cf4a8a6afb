"""A family as a Megatron-Core model: configuration, and a policy that gives log-probs and values.

Sequence-first inside, as Megatron has it: [s, b, h]; batch-first at the edges: [b, s]. What tells the families apart
are Megatron-Core's own options, and the frequencies of rotary positions.
"""

import math
from functools import partial
from typing import Any, Dict, Optional

import torch
import torch.nn.functional as F

from suite.worker.engines.megatron import stack
from suite.worker.engines.megatron.batch import MicroBatch
from suite.worker.engines.megatron.layers import Segments, block_spec
from suite.worker.engines.megatron.stack import COMPILED, TransformerConfig, parallel_state, tensor_parallel
from suite.worker.hugging_face import head_width, norm_epsilon, rope_theta
from suite.worker.models import DTYPES, build_value_head, padded_vocab

_RECOMPUTED = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def build_config(manifest: Dict[str, Any], device: torch.device) -> TransformerConfig:
    """The configuration of policy or reference; a new object each time, because Megatron writes into it."""
    size, layout, precision = manifest["size"], manifest["layout"], manifest["measure"]["precision"]
    fused = COMPILED and device.type == "cuda"
    native = layout.get("kernels") == "native"
    return TransformerConfig(
        num_layers=size["layers"],
        hidden_size=size["hidden"],
        ffn_hidden_size=size["ffn"],
        num_attention_heads=size["heads"],
        num_query_groups=size["kv_heads"],
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=fused,
        bias_dropout_fusion=fused,
        masked_softmax_fusion=False,
        transformer_impl="transformer_engine" if native else "local",
        # One backend, so that a note can name it; without Transformer Engine nothing reads it.
        attention_backend=stack.AttnBackend.fused if native else stack.AttnBackend.auto,
        persist_layer_norm=False,
        gradient_accumulation_fusion=False,
        # Weights are drawn by name once the model stands (``weights.draw_weights``).
        init_method=_leave_as_is,
        output_layer_init_method=_leave_as_is,
        embedding_init_method=_leave_as_is,
        params_dtype=DTYPES[precision],
        pipeline_dtype=DTYPES[precision],
        fp16=precision == "fp16",
        bf16=precision == "bf16",
        tensor_model_parallel_size=layout["tensor"],
        pipeline_model_parallel_size=layout["pipeline"],
        expert_model_parallel_size=layout.get("expert", 1),
        sequence_parallel=layout["sequence_parallel"],
        deallocate_pipeline_outputs=True,
        cuda_graph_scope=[],
        batch_p2p_sync=device.type == "cuda",
        **family_options(size, fused),
        **({} if layout["recompute"] == "none" else _RECOMPUTED),
    )


def _leave_as_is(_tensor: torch.Tensor) -> None:
    return None


class PolicyModel(stack.GPTModel):
    """This rank's part of a policy; on the last pipeline stage with output layer and, if asked for, value head.

    The value head is the same on all tensor ranks and reads states that were gathered from sequence parallelism, so
    its gradients are whole on every rank.
    """

    def __init__(self, config: TransformerConfig, size: Dict[str, Any], with_value_head: bool) -> None:
        super().__init__(
            config,
            block_spec(config),
            vocab_size=padded_vocab(size["vocab"], config.tensor_model_parallel_size),
            max_sequence_length=size["positions"],
            pre_process=parallel_state.is_pipeline_first_stage(),
            post_process=parallel_state.is_pipeline_last_stage(),
            share_embeddings_and_output_weights=size["tied_embeddings"],
            position_embedding_type="rope" if is_rotary(size) else "learned_absolute",
        )
        if is_rotary(size):
            self.rotary_pos_emb.inv_freq = inverse_frequencies(size).to(self.rotary_pos_emb.inv_freq.device)
        self.unpadded_vocab = size["vocab"]
        self.value_head = build_value_head(size["hidden"]) if with_value_head and self.post_process else None
        if self.post_process:
            # The states are gathered and cut to the response before the output layer, so it gets whole states.
            self.output_layer.sequence_parallel = False
            self.output_layer.allreduce_dgrad = config.tensor_model_parallel_size > 1

    def forward(self, tokens: torch.Tensor, batch: Optional[MicroBatch] = None, cache: Any = None) -> Any:
        """[B, s] tokens, of a micro batch or to be fed to the cache, to what the stage hands on.

        Before the last stage: states [s, B, h] (under sequence parallelism this rank's part of s). On the last stage
        with ``cache``: logits of the next token [b, vocab]. There with ``batch``: log-probs and values of its samples,
        [b, R] each, fp32, zero behind a response; values are None without a value head.
        """
        if cache is not None:
            positions = torch.arange(tokens.size(1), device=tokens.device) + cache.sequence_len_offset
            angles = self._angles(None, cache.max_sequence_length)
            states = self._states(tokens, positions, angles, inference_context=cache)
            return self._logits(states[-1:], gather=True)[0, :, : self.unpadded_vocab] if self.post_process else states
        angles = self._angles(batch.positions, max(batch.samples.lengths))
        segments = None if batch.segments is None else Segments(batch.segments)
        states = self._states(tokens, batch.positions, angles, packed_seq_params=segments)
        return self._logprobs_and_values(states, batch) if self.post_process else states

    def _angles(self, positions: Optional[torch.Tensor], longest: int) -> Optional[torch.Tensor]:
        """[s, 1, 1, head width]: how far each of these positions rotates, or each up to the longest."""
        if self.position_embedding_type != "rope":
            return None
        table = self.rotary_pos_emb(longest)
        return table if positions is None else table[positions]

    def _states(self, tokens: torch.Tensor, positions: torch.Tensor, angles: Any, **options: Any) -> torch.Tensor:
        """What this stage makes of them; ``options`` of Megatron's block."""
        embedded = None
        if self.pre_process:
            embedded = self.embedding(tokens, positions.unsqueeze(0))
            if self.training and self.config.recompute_granularity is not None and not embedded.requires_grad:
                # Megatron's checkpoint passes no gradient to weights when its input needs none (frozen embeddings).
                embedded = embedded.detach().requires_grad_()
        return self.decoder(hidden_states=embedded, attention_mask=None, rotary_pos_emb=angles, **options)

    def _logits(self, states: torch.Tensor, gather: bool) -> torch.Tensor:
        weight = self.shared_embedding_or_output_weight() if self.share_embeddings_and_output_weights else None
        logits, _ = self.output_layer(states, weight=weight, runtime_gather_output=gather)
        return logits

    def _logprobs_and_values(self, states: torch.Tensor, batch: MicroBatch) -> Any:
        if self.config.sequence_parallel:
            # Everything behind is the same on all tensor ranks: the gradient is whole, so it is only cut back.
            states = tensor_parallel.gather_from_sequence_parallel_region(states, tensor_parallel_output_grad=False)
        states = batch.before_responses(states)
        logits = self._logits(states, gather=False)
        # Padded columns of this rank's part get no probability, and so no gradient; without a record for backward,
        # which would copy the gradient of all logits.
        columns = logits.size(-1)
        held = self.unpadded_vocab - parallel_state.get_tensor_model_parallel_rank() * columns
        if held < columns:
            logits.detach()[..., max(held, 0) :] = float("-inf")
        logprobs = -tensor_parallel.vocab_parallel_cross_entropy(logits, batch.targets)
        if self.value_head is None:
            return batch.spread(logprobs.t()), None
        return batch.spread(logprobs.t()), batch.spread(self.value_head(states).squeeze(-1).float().t())


def is_rotary(size: Dict[str, Any]) -> bool:
    """Whether positions rotate queries and keys: with RMSNorm and a gated SiLU MLP without biases, as in Llama."""
    return size["architecture"] != "gpt2"


def family_options(size: Dict[str, Any], fused: bool) -> Dict[str, Any]:
    """Options of a TransformerConfig. ``fused``: Megatron's own fused bias and activation is called."""
    options: Dict[str, Any] = {"layernorm_epsilon": norm_epsilon(size), "kv_channels": head_width(size)}
    if not is_rotary(size):
        # Megatron's fused GELU is the tanh approximation, which is what GPT-2 uses; F.gelu alone is exact.
        return {**options, "activation_func": F.gelu if fused else partial(F.gelu, approximate="tanh")}
    options.update(
        normalization="RMSNorm",
        activation_func=F.silu,
        gated_linear_unit=True,
        add_bias_linear=False,
        add_qkv_bias=size["architecture"] == "qwen2",
        qk_layernorm=size["architecture"] in ("qwen3", "qwen3_moe"),
    )
    experts = size.get("experts")
    if experts is not None:  # Every token goes to those that its router chose: no capacity, no dropping, no balancing.
        options.update(
            num_moe_experts=experts["count"],
            moe_router_topk=experts["per_token"],
            moe_ffn_hidden_size=size["ffn"],
            # Softmax over the chosen alone, so that they add up to 1, or over all before choosing.
            moe_router_pre_softmax=not experts.get("normalise", True),
            moe_router_load_balancing_type="none",
            moe_aux_loss_coeff=0.0,
            moe_token_dispatcher_type="alltoall",
        )
    return options


def inverse_frequencies(size: Dict[str, Any]) -> torch.Tensor:
    """[head width / 2] fp32: radians per position, as Hugging Face computes them. Megatron-Core's own llama3 scaling
    has Llama 3.1's constants written into it."""
    width = head_width(size)
    exponents = torch.arange(0, width, 2, dtype=torch.int64).float() / width
    frequencies = 1.0 / (rope_theta(size) ** exponents)
    return _scaled(frequencies, size.get("rope_scaling"))


def _scaled(frequencies: torch.Tensor, scaling: Optional[Dict[str, Any]]) -> torch.Tensor:
    """Linear: all by ``factor``. llama3: those that turn less than ``low_frequency_factor`` times within the original
    positions, not those above ``high_frequency_factor``, and a blend between."""
    if scaling is None:
        return frequencies
    if scaling["kind"] == "linear":
        return frequencies / scaling["factor"]
    low, high = scaling["low_frequency_factor"], scaling["high_frequency_factor"]
    turns = scaling["original_positions"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * frequencies / scaling["factor"] + kept * frequencies
