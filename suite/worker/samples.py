"""Samples of uneven length in one tensor: prompt, response, and padding behind them; and which replica trains which."""

import heapq
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import torch

Tensors = Dict[str, torch.Tensor]


class Samples:
    """b samples, each its prompt followed by its response from column 0 on; what lies behind is padding (zeros).

    No real token comes after padding, so a causal model needs no mask to compute what it computes without padding.
    ``tokens``: [b, T] int64, T = the longest sample. R below is the longest response.
    """

    def __init__(self, tokens: torch.Tensor, prompt_lengths: Sequence[int], response_lengths: Sequence[int]) -> None:
        """Columns beyond the longest sample are left out; ``tokens`` that end with the prompts are prompts alone."""
        assert tokens.size(0) == len(prompt_lengths) == len(response_lengths), "each sample has its lengths"
        self.prompt_lengths, self.response_lengths = list(prompt_lengths), list(response_lengths)
        self.tokens = tokens[:, : max(self.lengths)]

    @classmethod
    def even(cls, tokens: torch.Tensor, prompt_tokens: int) -> "Samples":
        """Samples of one shape: [b, T] with ``prompt_tokens`` each."""
        rows = tokens.size(0)
        return cls(tokens, [prompt_tokens] * rows, [tokens.size(1) - prompt_tokens] * rows)

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    @property
    def lengths(self) -> List[int]:
        """Tokens of each sample, prompt and response."""
        return [prompt + response for prompt, response in zip(self.prompt_lengths, self.response_lengths)]

    @property
    def is_even(self) -> bool:
        """Whether all samples have one shape, so that responses are the last columns."""
        return len(set(self.prompt_lengths)) == 1 and len(set(self.response_lengths)) == 1

    @property
    def longest_response(self) -> int:
        return max(self.response_lengths)

    @property
    def real_tokens(self) -> int:
        return sum(self.lengths)

    def mask(self) -> torch.Tensor:
        """[b, R] bool: which columns of a response's values are tokens."""
        columns = torch.arange(self.longest_response, device=self.tokens.device)
        return columns < self.column(self.response_lengths)

    def response_positions(self) -> torch.Tensor:
        """[b, R] int64: the position of each response token; of padding, that of the sample's last token."""
        columns = torch.arange(self.longest_response, device=self.tokens.device)
        last = self.column(self.lengths) - 1
        return torch.minimum(columns + self.column(self.prompt_lengths), last)

    def responses(self) -> torch.Tensor:
        """[b, R] int64: response tokens; padding repeats the sample's last token."""
        return self.tokens.gather(1, self.response_positions())

    def take(self, rows: Sequence[int]) -> "Samples":
        """These samples, in this order."""
        chosen = torch.tensor(list(rows), device=self.tokens.device)
        return Samples(
            self.tokens[chosen],
            [self.prompt_lengths[row] for row in rows],
            [self.response_lengths[row] for row in rows],
        )

    def micro_batches(self, rows: int, tensors: Optional[Tensors] = None) -> Iterator[Tuple["Samples", Tensors]]:
        """``rows`` samples at a time with their rows of ``tensors`` ([b] or [b, R]), cut to their longest response."""
        for first in range(0, len(self), rows):
            rows_of = slice(first, first + rows)
            part = Samples(self.tokens[rows_of], self.prompt_lengths[rows_of], self.response_lengths[rows_of])
            own = {name: cut(tensor[rows_of], part.longest_response) for name, tensor in (tensors or {}).items()}
            yield part, own

    def column(self, numbers: Sequence[int]) -> torch.Tensor:
        """One for each sample, beside the tokens: [b, 1]."""
        return torch.tensor(list(numbers), device=self.tokens.device).unsqueeze(1)


def cut(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """[b, R] cut to its first columns; [b] as it is."""
    return tensor if tensor.dim() == 1 else tensor[:, :columns]


def widened(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """[b, columns]: zeros behind."""
    return torch.nn.functional.pad(tensor, (0, columns - tensor.size(1)))


def join_responses(parts: Sequence[torch.Tensor], longest: int) -> torch.Tensor:
    """[b_i, R_i] of micro batches in one [b, longest], with zeros behind."""
    return torch.cat([widened(part, longest) for part in parts])


def assign_samples(lengths: Sequence[int], replicas: int) -> List[List[int]]:
    """Indices of the samples of each replica: as many for each, nearly equal tokens, the longest first. The longest
    sample left goes to the replica with the fewest tokens among those that are not full.

    ``lengths``: tokens of each sample, a multiple of ``replicas`` of them.
    """
    each = len(lengths) // replicas
    samples_of_replica: List[List[int]] = [[] for _ in range(replicas)]
    open_replicas = [(0, replica) for replica in range(replicas)]
    for number in sorted(range(len(lengths)), key=lambda index: -lengths[index]):  # of equals the first comes first
        tokens, replica = heapq.heappop(open_replicas)
        samples_of_replica[replica].append(number)
        if len(samples_of_replica[replica]) < each:
            heapq.heappush(open_replicas, (tokens + lengths[number], replica))
    return samples_of_replica
