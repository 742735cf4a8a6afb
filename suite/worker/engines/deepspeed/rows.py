"""How samples go through a model: each in a row of its own, padded behind, or end to end in one row."""

from typing import Any, Dict, List

import torch

from suite.worker.engines.deepspeed.attention import Segments
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
