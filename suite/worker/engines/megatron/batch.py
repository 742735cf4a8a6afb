"""A micro batch of samples as the model takes it: padded to one length, or packed end to end into one row."""

from typing import List, Optional

import torch
import torch.nn.functional as F

from suite.worker.samples import Samples


class MicroBatch:
    """b samples as ``tokens`` [B, T]: B = b rows padded behind, or packed B = 1 with T the sum of their lengths.

    ``positions``: [T] of every row. ``segments``: packed samples' lengths, with that of padding behind; None: one
    sample a row. T is a multiple of ``multiple``, so that sequence parallelism can split it. ``targets``: response
    tokens in the order of ``before_responses``, [R, b] or [tokens, 1].
    """

    def __init__(self, samples: Samples, packed: bool, multiple: int) -> None:
        self._samples = samples
        self._packed = packed
        self.segments: Optional[List[int]] = None
        columns = torch.arange(samples.tokens.size(1), device=samples.tokens.device)
        tokens, positions = samples.tokens, columns
        if packed:
            lengths = torch.tensor(samples.lengths, device=tokens.device)
            real = columns < lengths.unsqueeze(1)
            tokens, positions = tokens[real].unsqueeze(0), columns.expand_as(real)[real]
            self.segments = list(samples.lengths)
        padding = -tokens.size(1) % multiple
        if packed and padding:
            self.segments = [*samples.lengths, padding]
        # Padding stands at position 0, since there may be none behind the longest sample.
        self.tokens, self.positions = F.pad(tokens, (0, padding)), F.pad(positions, (0, padding))
        self.longest = max(samples.lengths)
        # On the device before a pass begins, in the midst of which it would wait for all that was launched.
        self._is_plain = samples.is_even and not packed
        if self._is_plain:
            self.targets = samples.tokens[:, samples.prompt_lengths[0] :].t().contiguous()
        else:
            self._mask = samples.mask()
            self._chosen = self._places()[self._mask]
            self.targets = samples.responses()[self._mask].unsqueeze(1)

    @property
    def padded_tokens(self) -> int:
        return self.tokens.numel() - self._samples.real_tokens

    def before_responses(self, states: torch.Tensor) -> torch.Tensor:
        """[T, B, h] -> the states before each response token: [R, b, h], or of uneven samples [tokens, 1, h]."""
        if self._is_plain:
            first = self._samples.prompt_lengths[0] - 1
            return states[first : first + self._samples.longest_response]
        return states.flatten(0, 1).index_select(0, self._chosen).unsqueeze(1)

    def by_sample(self, numbers: torch.Tensor) -> torch.Tensor:
        """What was computed on ``before_responses``, [R, b] or [tokens, 1], as [b, R], zero behind a response."""
        if self._is_plain:
            return numbers.t()
        return numbers.new_zeros(self._mask.shape).masked_scatter(self._mask, numbers)

    def _places(self) -> torch.Tensor:
        """[b, R]: where the states before response tokens lie in [T x B]."""
        samples = self._samples
        columns = samples.response_positions() - 1
        if self._packed:
            lengths = torch.tensor(samples.lengths, device=columns.device)
            return columns + (lengths.cumsum(0) - lengths).unsqueeze(1)
        return columns * len(samples) + torch.arange(len(samples), device=columns.device).unsqueeze(1)
