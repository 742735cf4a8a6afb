"""FLOPs and bytes of one transformer block and of the output head, per micro batch and device, on arrays.

Every argument is a number or a numpy array; arrays go through element by element, so that a hundred thousand layouts
cost one call. ``tokens`` are the tokens of one micro batch that one context-parallel rank sees; tensor parallelism
divides as Megatron does (Shoeybi et al., arXiv 1909.08053, section 3).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from suite.planner.work import Jobs

Numbers = Any
ELEMENT_BYTES = 2


def matrix_elements(
    hidden: Numbers, ffn: Numbers, kv_share: Numbers, gated: Numbers, width: Numbers = None, mlps: Numbers = 1
) -> Numbers:
    """Elements of a block's weight matrices: query and output h w each, keys and values h w kv_share each, the MLP's.

    ``width`` is heads x head dimension, h where it is left out (it is not in Qwen3, arXiv 2505.09388); ``kv_share`` is
    key-value heads over heads (grouped-query attention, Ainslie et al., arXiv 2305.13245), ``gated`` 1 for a
    three-matrix MLP (Shazeer, arXiv 2002.05202), ``mlps`` how many MLPs are counted: a mixture of experts has several.
    """
    attention = hidden * (hidden if width is None else width) * (2 + 2 * kv_share)
    return attention + mlps * ((2 + gated) * hidden * ffn)


def touched_share(tokens: Numbers, experts: Numbers, per_token: Numbers) -> Numbers:
    """Share of the experts that ``tokens`` tokens meet, each ``per_token`` of them, if all are chosen alike often:
    1 - (1 - k / E)^n. A dense block's one MLP is met by any token."""
    return 1 - (1 - per_token / experts) ** np.maximum(tokens, 1)


def linear_flops(tokens: Numbers, elements: Numbers, tensor: Numbers) -> Numbers:
    """Forward FLOPs of a block's matrix products: two per element and token (Kaplan et al., arXiv 2001.08361, 2.1)."""
    return 2 * tokens * elements / tensor


def inverse_inner_width(jobs: "Jobs") -> Numbers:
    """Mean of 1 / k over a block's FLOPs, k being the width that a product sums over.

    That is h in the column-parallel products, w / t and ffn / t in the row-parallel ones (arXiv 1909.08053, figure 3).
    """
    hidden, ffn, kv_share, width, mlps = jobs.hidden, jobs.ffn, jobs.kv_share, jobs.width, jobs.experts_per_token
    inside = mlps * ((1 + jobs.gated) * ffn / hidden)
    per_width = width / hidden * (1 + 2 * kv_share) + (1 + mlps) * jobs.tensor + inside
    return per_width * hidden / matrix_elements(hidden, ffn, kv_share, jobs.gated, width, mlps)


def attention_flops(tokens: Numbers, sequence: Numbers, width: Numbers, tensor: Numbers, causal: Numbers) -> Numbers:
    """Forward FLOPs of scores and weighted sum: 4 s w per token (Korthikanti et al., arXiv 2205.05198, appendix A).

    ``width`` is heads x head dimension. Fused kernels skip what a causal mask hides, half of it (Dao, arXiv 2307.08691,
    section 3.1); ``causal`` is 1 there.
    """
    return 4 * tokens * sequence * width / tensor * (1 - causal / 2)


def operand_bytes(jobs: "Jobs") -> Numbers:
    """Bytes of activations that a block's matrix products read and write in one forward pass, each once, in 16 bit.

    Column-parallel products read the whole input, row-parallel ones write the whole output (arXiv 1909.08053, fig. 3).
    Each expert that a token meets reads its input and writes its output.
    """
    tokens, mlps = jobs.tokens, jobs.experts_per_token
    inside = tokens * (jobs.width * (2 + 2 * jobs.kv_share) + mlps * ((2 + jobs.gated) * jobs.ffn)) / jobs.tensor
    return ELEMENT_BYTES * (inside + (2 + 2 * mlps) * tokens * jobs.hidden)


def score_bytes(tokens: Numbers, sequence: Numbers, heads: Numbers, tensor: Numbers) -> Numbers:
    """Bytes that unfused attention moves for its score matrices in a forward pass: nine per score.

    Scores written and read twice in 16 bit around the softmax, and a byte of dropout mask (arXiv 2205.05198,
    section 4.1: scores, softmax, dropout). Fused attention moves none (Dao et al., arXiv 2205.14135).
    """
    return 9 * tokens * sequence * heads / tensor


def head_flops(tokens: Numbers, hidden: Numbers, vocab: Numbers, tensor: Numbers) -> Numbers:
    """Forward FLOPs of the output head on ``tokens`` positions."""
    return 2 * tokens * hidden * vocab / tensor


def roofline(compute: Numbers, memory: Numbers, exposed: Numbers) -> Numbers:
    """Seconds of work that takes ``compute`` seconds of arithmetic and ``memory`` seconds of traffic: the larger of the
    two (Williams, Waterman and Patterson, "Roofline", CACM 2009), and the share of the other that nothing hides."""
    return np.maximum(compute, memory) + exposed * np.minimum(compute, memory)
