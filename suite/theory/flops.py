"""Floating-point operations of one PPO iteration: matrix products only, two operations per multiply-add.

As PaLM counts them (Chowdhery et al., arXiv 2204.02311, appendix B), phase by phase: a token meets every weight
matrix once per forward pass (2 FLOPs per element), attention adds 4 h FLOPs per pair of query and key, a backward
pass costs twice its forward pass, recomputation is no model FLOP. What differs from a language model's pre-training:

- The output head runs only where log-probs are asked for: on the response positions in score, reference and train,
  and on one position per new token in generation. The engines compute it so; a stack that computes it on every
  position does work that is not counted here.
- Decoding meets a cache that grows: its attention is summed over the steps. It is causal under either convention.
- Frozen layers have a forward pass and no backward pass; a frozen output head passes gradients on without its own.
- Beside LoRA adapters a block's frozen matrices pass gradients on (once their forward pass) and get none; the adapters
  are products of their own in every forward pass. A separate critic runs in score and train, whole.
"""

from __future__ import annotations

from typing import Literal

from suite.spec.base import Frozen
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.adapters import adapter_elements, critic_shape
from suite.theory.parameters import layer_matrix_elements

Attention = Literal["full", "causal"]

_CONVENTIONS = {
    "full": "matrix products, full attention (PaLM), logits on response positions, decoding over a growing cache",
    "causal": "matrix products, causal attention, logits on response positions, decoding over a growing cache",
}


class IterationFlops(Frozen):
    """FLOPs of one iteration over all replicas. ``recompute`` is what recomputation adds to the training phase."""

    generate_prefill: int
    generate_decode: int
    score: int
    reference: int
    train: int
    recompute: int
    convention: str

    @property
    def generate(self) -> int:
        return self.generate_prefill + self.generate_decode

    @property
    def model(self) -> int:
        """What the work needs: the numerator of MFU."""
        return self.generate + self.score + self.reference + self.train

    @property
    def hardware(self) -> int:
        """What is executed: the numerator of HFU."""
        return self.model + self.recompute


def iteration_flops(
    size: Shape, workload: Workload, samples: int, recompute: bool = False, attention: Attention = "full"
) -> IterationFlops:
    """FLOPs of one iteration with ``samples`` rollouts in all.

    ``attention`` "full" counts every pair of positions of a sequence, as most published MFU does; "causal" only the
    pairs that the mask leaves. Raises ValueError for more trainable layers than the shape has.
    """
    trainable = size.layers if workload.trainable_layers is None else workload.trainable_layers
    if trainable > size.layers:
        raise ValueError(f"{trainable} trainable layers, but {size.name} has {size.layers}")
    prompt, response = workload.prompt_tokens, workload.new_tokens
    sequence = workload.sequence_tokens
    block = _block(size, sequence, attention)
    adapters = 2 * adapter_elements(size, workload)
    output_head = response * 2 * size.hidden * size.vocab
    values = _values(size, workload, attention)
    reference_blocks = trainable if workload.reference == "hydra" else size.layers

    forward = size.layers * (block + adapters * sequence) + output_head + values
    output_head_backward = output_head if workload.trainable_layers is not None else 2 * output_head
    backward = trainable * _block_backward(size, workload, block) + output_head_backward + 2 * values
    prefill = size.layers * (_block(size, prompt, attention) + adapters * prompt) + 2 * size.hidden * size.vocab
    decode = _decode(size, prompt, response) + size.layers * adapters * (response - 1)
    return IterationFlops(
        generate_prefill=samples * prefill,
        generate_decode=samples * decode,
        score=samples * forward,
        reference=samples * (reference_blocks * block + output_head),
        train=samples * workload.ppo_epochs * (forward + backward),
        recompute=samples * workload.ppo_epochs * trainable * (block + adapters * sequence) if recompute else 0,
        convention=_CONVENTIONS[attention],
    )


def _block_backward(size: Shape, workload: Workload, block: int) -> int:
    """Twice the forward pass; of frozen matrices beside adapters once."""
    if workload.lora_rank is None:
        return 2 * block
    frozen = 2 * layer_matrix_elements(size) * workload.sequence_tokens
    adapters = 2 * adapter_elements(size, workload) * workload.sequence_tokens
    return 2 * (block + adapters) - frozen


def _values(size: Shape, workload: Workload, attention: Attention) -> int:
    """Forward pass that gives the values of one sequence beside the policy's own."""
    if workload.critic is None:
        return workload.new_tokens * _value_head(size.hidden)
    trunk = critic_shape(size, workload.critic)
    head = workload.new_tokens * 2 * trunk.hidden
    return trunk.layers * _block(trunk, workload.sequence_tokens, attention) + head


def _block(size: Shape, tokens: int, attention: Attention) -> int:
    """Forward pass of one block over one sequence."""
    pairs = tokens * tokens if attention == "full" else tokens * (tokens + 1) // 2
    return 2 * layer_matrix_elements(size) * tokens + 4 * size.hidden * pairs


def _decode(size: Shape, prompt: int, response: int) -> int:
    """One sequence: the prefill gives the first new token, so response - 1 steps, step i over prompt + i positions."""
    steps = response - 1
    pairs = steps * prompt + steps * (steps + 1) // 2
    blocks = 2 * layer_matrix_elements(size) * steps + 4 * size.hidden * pairs
    return size.layers * blocks + steps * 2 * size.hidden * size.vocab


def _value_head(hidden: int) -> int:
    """Forward pass of hidden -> 2 hidden -> 1 at one position."""
    return 2 * (2 * hidden * hidden + 2 * hidden)
