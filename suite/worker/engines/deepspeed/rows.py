"""A micro batch as Hugging Face's trunk takes it, and its attention over a packed row."""

import inspect
from typing import Any, Dict, Optional, Sequence, Tuple

import torch

from suite.worker.engines.rows import Rows
from suite.worker.samples import Samples


class TrunkRows(Rows):
    """``options``: for the trunk beside the tokens."""

    def __init__(self, samples: Samples, packed: bool) -> None:
        super().__init__(samples, packed)
        self.options: Dict[str, Any] = {}
        if packed:
            # A mask of four dimensions is taken as it is, so that none over the whole row is made; nobody reads it.
            unread = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=samples.tokens.device)
            self.options.update(attention_mask=unread, position_ids=self.positions.unsqueeze(0))
            self.options["segments"] = Segments(samples.lengths, samples.tokens.device)

    def before_responses(self, states: torch.Tensor) -> torch.Tensor:
        """[B, T, h] -> [b, R, h], or [n, h]: the states before response tokens."""
        if self.is_plain:
            return states[:, self.samples.prompt_lengths[0] - 1 : -1]
        return states.flatten(0, 1)[self.before]


NAME = "packed_segments"


class Segments:
    """Where the samples of a packed row begin and end: ``lengths`` in order; ``bounds`` [n + 1] int32, from 0 on."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.lengths = list(lengths)
        ends = torch.tensor([0, *self.lengths]).cumsum(0)
        self.bounds = ends.to(device=device, dtype=torch.int32)


def register_attention() -> str:
    """Make the attention known to transformers; its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def attention_kernel(device: torch.device, dtype: torch.dtype, head_width: int) -> str:
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
