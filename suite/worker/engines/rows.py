"""How samples go through a model: each in a row of its own, padded behind, or packed end to end in one row."""

from itertools import accumulate
from typing import List

import torch

from suite.worker.samples import Samples


class Rows:
    """b samples as ``tokens`` [B, T]: B = b rows, or packed B = 1 with T the sum of lengths and ``positions`` [T].

    Only the states before response tokens go on to the output matrix, so that no padding reaches it: n of them in all,
    or of even samples in rows of their own, where they are the same columns of each, [b, R].
    """

    def __init__(self, samples: Samples, packed: bool) -> None:
        """All is put on the device here, so that rows that are made ahead keep nobody waiting in between."""
        self.samples, self.tokens = samples, samples.tokens
        self.is_plain = samples.is_even and not packed
        rows, width = samples.tokens.shape
        starts = [row * width for row in range(rows)]
        if packed:
            self.tokens = samples.tokens.flatten()[self._at(starts, samples.lengths)].unsqueeze(0)
            self.positions = self._at([0] * rows, samples.lengths)
            starts = [0, *accumulate(samples.lengths[:-1])]
        if not self.is_plain:
            lengths = samples.response_lengths
            befores = [start + prompt - 1 for start, prompt in zip(starts, samples.prompt_lengths)]
            self.before = self._at(befores, lengths)
            self._spread = self._at([row * samples.longest_response for row in range(rows)], lengths)

    def responses(self) -> torch.Tensor:
        """[b, R] or [n] int64: response tokens."""
        if self.is_plain:
            return self.tokens[:, self.samples.prompt_lengths[0] :]
        return self.tokens.flatten()[self.before + 1]

    def spread(self, numbers: torch.Tensor) -> torch.Tensor:
        """[b, R], or n numbers -> [b, R], zero behind a response."""
        if self.is_plain:
            return numbers
        rows, longest = len(self.samples), self.samples.longest_response
        return numbers.new_zeros(rows * longest).index_copy(0, self._spread, numbers.flatten()).view(rows, longest)

    def _at(self, starts: List[int], lengths: List[int]) -> torch.Tensor:
        """Places in the flattened rows: of each sample ``length`` from its start on."""
        parts = [torch.arange(start, start + length) for start, length in zip(starts, lengths)]
        return torch.cat(parts).to(self.samples.tokens.device)
