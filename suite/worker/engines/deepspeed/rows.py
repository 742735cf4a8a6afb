"""How samples go through a model: each in a row of its own, padded behind, or end to end in one row."""

import inspect
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from suite.worker.samples import Samples


class Rows:
    """The rows of one pass. ``tokens`` [b, T] or, packed, [1, sum of lengths]; ``options`` for the trunk beside them.

    Only the states before response tokens go on to the output matrix, so that no padding reaches it: n of them in all
    [n, h], or of even samples, where they are the same columns of each, [b, R, h].
    """

    options: Dict[str, Any]

    def __init__(self, samples: Samples, packed: bool) -> None:
        """Everything is put on the device here, so that rows that are made ahead keep nobody waiting in between."""
        self._samples = samples
        self._plain = samples.is_even and not packed
        self.tokens, self.options = samples.tokens, {}
        rows, width = len(samples), samples.tokens.size(1)
        starts = [row * width for row in range(rows)]
        if packed:
            segments = Segments(samples.lengths, samples.tokens.device)
            self.tokens = samples.tokens.flatten()[self._at(starts, samples.lengths)].unsqueeze(0)
            ends = torch.tensor(samples.lengths).cumsum(0).tolist()
            starts = [end - length for end, length in zip(ends, samples.lengths)]
            # A mask of four dimensions is taken as it is, so that none over the whole row is made; nobody reads it.
            unread = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=samples.tokens.device)
            self.options = {"attention_mask": unread, "position_ids": segments.positions, "segments": segments}
        if self._plain:
            return
        lengths = samples.response_lengths
        self._before = self._at([start + prompt - 1 for start, prompt in zip(starts, samples.prompt_lengths)], lengths)
        self._spread = self._at([row * samples.longest_response for row in range(rows)], lengths)

    def before_responses(self, states: torch.Tensor) -> torch.Tensor:
        """[rows, T, h] -> [b, R, h], or [n, h]: the states before response tokens."""
        if self._plain:
            return states[:, self._samples.prompt_lengths[0] - 1 : -1]
        return states.flatten(0, 1)[self._before]

    def responses(self) -> torch.Tensor:
        """[b, R] or [n] int64: response tokens."""
        if self._plain:
            return self.tokens[:, self._samples.prompt_lengths[0] :]
        return self.tokens.flatten()[self._before + 1]

    def spread(self, numbers: torch.Tensor) -> torch.Tensor:
        """[b, R] or [n] -> [b, R], zero behind a response."""
        if self._plain:
            return numbers
        rows, longest = len(self._samples), self._samples.longest_response
        return numbers.new_zeros(rows * longest).index_copy(0, self._spread, numbers).view(rows, longest)

    def _at(self, starts: List[int], lengths: List[int]) -> torch.Tensor:
        """Places in the flattened rows: of each sample ``length`` from its start on."""
        parts = [torch.arange(start, start + length) for start, length in zip(starts, lengths)]
        return torch.cat(parts).to(self._samples.tokens.device)


NAME = "packed_segments"


class Segments:
    """Where the samples of a packed row begin and end: ``lengths`` in order; ``bounds`` [n + 1] int32, from 0 on."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.lengths = list(lengths)
        ends = torch.tensor([0, *self.lengths]).cumsum(0)
        self.bounds = ends.to(device=device, dtype=torch.int32)
        self.positions = torch.cat([torch.arange(length) for length in self.lengths]).unsqueeze(0).to(device)


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
