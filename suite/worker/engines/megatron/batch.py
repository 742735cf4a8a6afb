"""A micro batch of samples as the model takes it: padded to one length, or packed end to end into one row."""

import torch
import torch.nn.functional as F

from suite.worker.engines.rows import Rows
from suite.worker.samples import Samples


class MicroBatch(Rows):
    """T is a multiple of ``multiple``, so that sequence parallelism can split it; ``positions``: [T] of every row.

    ``segments``: packed samples' lengths, with that of padding behind; None: one sample a row. ``targets``: response
    tokens in the order of ``before_responses``, [R, b] or [n, 1].
    """

    def __init__(self, samples: Samples, packed: bool, multiple: int) -> None:
        super().__init__(samples, packed)
        rows, width = self.tokens.shape
        padding = -width % multiple
        self.segments = [*samples.lengths, *([padding] if padding else [])] if packed else None
        if self.is_plain:
            self.targets = self.responses().t().contiguous()
        else:
            self.targets = self.responses().unsqueeze(1)
            self._chosen = self.before % width * rows + self.before // width  # in [T x B]
        positions = self.positions if packed else torch.arange(width, device=self.tokens.device)
        # Padding stands at position 0, since there may be none behind the longest sample.
        self.tokens, self.positions = F.pad(self.tokens, (0, padding)), F.pad(positions, (0, padding))

    def before_responses(self, states: torch.Tensor) -> torch.Tensor:
        """[T, B, h] -> the states before each response token: [R, b, h] or [n, 1, h]."""
        if self.is_plain:
            first = self.samples.prompt_lengths[0] - 1
            return states[first : first + self.samples.longest_response]
        return states.flatten(0, 1).index_select(0, self._chosen).unsqueeze(1)
