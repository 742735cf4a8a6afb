"""Attention over packed rows: samples end to end in one row, each attending to itself alone.

Registered with transformers as an attention of its own, so that every family has it. No work is done for pairs of
tokens of different samples.
"""

import inspect
from typing import Any, Optional, Sequence, Tuple

import torch

NAME = "packed_segments"


class Segments:
    """Where the samples of a packed row begin and end: ``lengths`` in order; ``bounds`` [n + 1] int32, from 0 on."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.lengths = list(lengths)
        ends = torch.tensor([0, *self.lengths]).cumsum(0)
        self.bounds = ends.to(device=device, dtype=torch.int32)
        self.positions = torch.cat([torch.arange(length) for length in self.lengths]).unsqueeze(0).to(device)


def register() -> str:
    """Make the attention known to transformers; its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def kernel(device: torch.device, dtype: torch.dtype, head_width: int) -> str:
    """What computes packed attention there, in words."""
    if _varlen(device, dtype, head_width) is not None:
        return "torch's variable-length attention, all samples of a row in one kernel"
    return "PyTorch's scaled dot-product attention, sample by sample"


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    segments: Optional[Segments] = None,
    scaling: Optional[float] = None,
    **options: Any,
) -> Tuple[torch.Tensor, None]:
    """[b, heads, T, d] -> [b, T, heads, d], causal; without ``segments`` as transformers' ``sdpa``, mask and all."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if segments is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    varlen = _varlen(query.device, query.dtype, query.size(-1))
    if varlen is not None:
        longest = max(segments.lengths)
        rows = [each[0].transpose(0, 1).contiguous() for each in (query, key, value)]
        bounds = segments.bounds
        grouped = query.size(1) != key.size(1)
        result = varlen(
            *(*rows, bounds, bounds, longest, longest), scale=scaling, window_size=(-1, 0), enable_gqa=grouped
        )
        return result.unsqueeze(0), None
    split = [each.split(segments.lengths, dim=2) for each in (query, key, value)]
    parts = [sdpa_attention_forward(module, *one, None, scaling=scaling, **options)[0] for one in zip(*split)]
    return torch.cat(parts, dim=1), None


def _varlen(device: torch.device, dtype: torch.dtype, head_width: int) -> Any:
    """torch's attention over rows of several samples, which it has on CUDA in 16 bit; else None."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return None
    if head_width % 8 or head_width > 256:  # what FlashAttention's kernels take
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    known = inspect.signature(varlen_attn).parameters
    return varlen_attn if {"scale", "window_size", "enable_gqa"} <= set(known) else None
