"""Floating-point operations of one iteration: matrix products only, two operations per multiply-add.

As PaLM counts them (Chowdhery et al., arXiv 2204.02311, appendix B), phase by phase: a token meets every weight
matrix once per forward pass (2 FLOPs per element), attention adds 4 h FLOPs per pair of query and key (h: the width
of all query heads together), a backward pass costs twice its forward pass, recomputation is no model FLOP. What differs
from a language model's pre-training:

- The output head runs only where log-probs are asked for: on the response positions in score, reference and train,
  and on one position per new token in generation. The engines compute it so; a stack that computes it on every
  position does work that is not counted here.
- Decoding meets a cache that grows: its attention is summed over the steps. It is causal under either convention.
- Frozen layers have a forward pass and no backward pass; a frozen output head passes gradients on without its own.
- Beside LoRA adapters a block's frozen matrices pass gradients on (once their forward pass) and get none; the adapters
  are products of their own in every forward pass. A separate critic runs in score and train, whole.
- An algorithm that learns no values has neither head nor critic, one that asks for no reference has no such phase.
- Of a mixture of experts a token meets the router and the experts that it chooses.
- Where an engine keeps what it computed of a prompt, its samples compute it once; what each computes again of the last
  block, which is not kept whole, is not counted.
- Samples of uneven length count with their own tokens: padding is no work, and packing changes none.
"""

from typing import Literal

from suite.spec.base import Frozen
from suite.spec.manifest import SampleLengths
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.adapters import active_adapter_elements, critic_shape
from suite.theory.lengths import Totals, drawn, totals
from suite.theory.parameters import active_matrix_elements

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
    size: Shape,
    workload: Workload,
    samples: int,
    recompute: bool = False,
    attention: Attention = "full",
    lengths: SampleLengths | None = None,
    unscored: bool = False,
    sharing: int | None = None,
) -> IterationFlops:
    """FLOPs of one iteration with ``samples`` rollouts in all, of uneven ``lengths`` where they are given.

    ``unscored``: the policy makes no pass in score, where only values are computed. ``sharing``: of so many samples in
    a row, which are generated together, those of one prompt compute it once; None: each computes its own.
    ``attention`` "full" counts every pair of positions of a sequence, as most published MFU does; "causal" only the
    pairs that the mask leaves. Raises ValueError for more trainable layers than the shape has, and for ``lengths`` of
    another number of samples; what stands for lengths that are not given is in ``suite.theory.lengths.totals``.
    """
    trainable = size.layers if workload.trainable_layers is None else workload.trainable_layers
    if trainable > size.layers:
        raise ValueError(f"{trainable} trainable layers, but {size.name} has {size.layers}")
    work = totals(workload, samples, lengths, causal=attention == "causal")
    prompts = work if sharing is None else _prompts_once(workload, samples, lengths, attention, sharing)
    block = _block(size, work.tokens, work.pairs)
    adapters = 2 * active_adapter_elements(size, workload)
    output_head = work.response * 2 * size.hidden * size.vocab
    values = _values(size, workload, work)
    reference_blocks = trainable if workload.reference == "hydra" else size.layers

    forward = size.layers * (block + adapters * work.tokens) + output_head + values
    output_head_backward = output_head if workload.trainable_layers is not None else 2 * output_head
    backward = trainable * _block_backward(size, workload, work.tokens, block) + output_head_backward + 2 * values
    first_logits = work.samples * 2 * size.hidden * size.vocab
    prefill = size.layers * (_block(size, prompts.prompt, prompts.prompt_pairs) + adapters * prompts.prompt)
    decode = size.layers * (_block(size, work.steps, work.decode_pairs) + adapters * work.steps)
    return IterationFlops(
        generate_prefill=prefill + first_logits,
        generate_decode=decode + work.steps * 2 * size.hidden * size.vocab,
        score=values if unscored else forward,
        reference=reference_blocks * block + output_head if workload.uses_reference else 0,
        train=workload.ppo_epochs * (forward + backward),
        recompute=workload.ppo_epochs * trainable * (block + adapters * work.tokens) if recompute else 0,
        convention=_CONVENTIONS[attention],
    )


def _prompts_once(
    workload: Workload, samples: int, lengths: SampleLengths | None, attention: Attention, sharing: int
) -> Totals:
    """The sums over the first sample of each prompt, and over the first that is generated apart from it."""
    first = [number for number in range(samples) if number % workload.group == 0 or number % sharing == 0]
    lengths = drawn(workload, samples, lengths)
    if lengths is not None:
        prompt, response = (tuple(each[number] for number in first) for each in (lengths.prompt, lengths.response))
        lengths = SampleLengths(prompt=prompt, response=response)
    return totals(workload, len(first), lengths, causal=attention == "causal")


def _block_backward(size: Shape, workload: Workload, tokens: int, block: int) -> int:
    """Twice the forward pass; of frozen matrices beside adapters once."""
    if workload.lora_rank is None:
        return 2 * block
    frozen = 2 * active_matrix_elements(size) * tokens
    adapters = 2 * active_adapter_elements(size, workload) * tokens
    return 2 * (block + adapters) - frozen


def _values(size: Shape, workload: Workload, work: Totals) -> int:
    """Forward pass that gives the values of all sequences beside the policy's own; 0 where nobody learns them."""
    if not workload.uses_values:
        return 0
    if workload.critic is None:
        return work.response * 2 * (2 * size.hidden * size.hidden + 2 * size.hidden)  # hidden -> 2 hidden -> 1
    trunk = critic_shape(size, workload.critic)
    head = work.response * 2 * trunk.hidden
    return trunk.layers * _block(trunk, work.tokens, work.pairs) + head


def _block(size: Shape, tokens: int, pairs: int) -> int:
    """Forward pass of one block over ``tokens`` tokens with ``pairs`` pairs of query and key."""
    return 2 * active_matrix_elements(size) * tokens + 4 * size.query_width * pairs
