"""What uneven lengths make of an iteration: exact sums over its samples, and the moments of a replica's decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from suite.spec.layout import Layout
from suite.spec.manifest import SampleLengths, Work
from suite.spec.resolve import sample_lengths
from suite.spec.workload import Workload

#: Tokens of one sample's prompt and response.
Sample = tuple[int, int]


@dataclass(frozen=True)
class Totals:
    """Sums over all samples. A sample's prefill gives its first new token, so it takes response - 1 decode steps.

    Pairs of query and key: of whole sequences and of prompts, each position with all or with those before it and itself
    (``causal``), and of the decode steps, each with all before it and itself.
    """

    samples: int
    prompt: int
    response: int
    pairs: int
    prompt_pairs: int
    decode_pairs: int

    @property
    def tokens(self) -> int:
        return self.prompt + self.response

    @property
    def steps(self) -> int:
        return self.response - self.samples


def totals(workload: Workload, samples: int, lengths: SampleLengths | None, causal: bool) -> Totals:
    """Sums over ``samples`` samples of even length, or of the drawn ``lengths``.

    An uneven workload without them is summed over those that seed 0 draws, which differ from another seed's by little.
    Raises ValueError for lengths of another number of samples.
    """
    lengths = drawn(workload, samples, lengths)
    if lengths is None:
        return _sums([(workload.prompt_tokens, workload.new_tokens)], samples, causal)
    if len(lengths.prompt) != samples:
        raise ValueError(f"lengths of {len(lengths.prompt)} samples, but there are {samples}")
    return _sums(list(zip(lengths.prompt, lengths.response, strict=True)), 1, causal)


def _sums(each: Sequence[Sample], times: int, causal: bool) -> Totals:
    def pairs(tokens: int) -> int:
        return tokens * (tokens + 1) // 2 if causal else tokens * tokens

    return Totals(
        samples=times * len(each),
        prompt=times * sum(prompt for prompt, _ in each),
        response=times * sum(response for _, response in each),
        pairs=times * sum(pairs(prompt + response) for prompt, response in each),
        prompt_pairs=times * sum(pairs(prompt) for prompt, _ in each),
        decode_pairs=times * sum((response - 1) * prompt + (response - 1) * response // 2 for prompt, response in each),
    )


def drawn(workload: Workload, samples: int, lengths: SampleLengths | None) -> SampleLengths | None:
    """``lengths`` where they are known; of an uneven workload those that seed 0 draws; None where all are even."""
    return sample_lengths(workload, samples, 0) if lengths is None else lengths


def generated_together(workload: Workload, work: Work, layout: Layout) -> list[list[Sample]]:
    """The samples of each replica, which are generated at once; of each generating rank, where some generate alone.

    Where all are even one replica stands for all.
    """
    share = work.global_rollouts // layout.generation_ranks if layout.generation_ranks else work.replica_rollouts
    lengths = drawn(workload, work.global_rollouts, work.lengths)
    if lengths is None:
        return [[(workload.prompt_tokens, workload.new_tokens)] * share]
    return _dealt(list(zip(lengths.prompt, lengths.response, strict=True)), share)


def decode_batches(samples: Sequence[Sample]) -> list[tuple[int, int]]:
    """Decode steps until the longest of ``samples`` is complete, and how many run in each: (steps, samples)."""
    runs, done = [], 0
    steps = sorted(response - 1 for _, response in samples)
    for finished, last in enumerate(steps):
        if last > done:
            runs.append((last - done, len(steps) - finished))
            done = last
    return runs


def positions_read(samples: Sequence[Sample]) -> int:
    """Cached positions that all decode steps of ``samples`` read."""
    return sum((response - 1) * prompt + (response - 1) * (response - 2) // 2 for prompt, response in samples)


def positions_held(samples: Sequence[Sample]) -> int:
    """The most cached positions at any one time, where a complete sample's are freed; its last token needs none."""
    longest_first = sorted(samples, key=lambda sample: -sample[1])
    prompts = accumulate(prompt for prompt, _ in longest_first)
    # when the k longest still run, the shortest of these is about to be complete
    return max(
        held + count * (response - 1)
        for count, (held, (_, response)) in enumerate(zip(prompts, longest_first, strict=True), start=1)
    )


def fullest_micro_batch(each: Sequence[int], work: Work, balance: bool) -> int:
    """Tokens that the largest micro batch has at least, however samples of ``each`` tokens are put into micro batches.

    It has no fewer than the mean, and no fewer than the longest sample with the shortest others. With ``balance``
    samples may go to any replica.
    """
    rows, micro = len(each) if balance else work.replica_rollouts, work.micro_batch
    return max(
        max(-(-sum(part) * micro // len(part)), max(part) + sum(sorted(part)[: micro - 1]))
        for part in (each[first : first + rows] for first in range(0, len(each), rows))
    )


def _dealt(each: list[Sample], share: int) -> list[list[Sample]]:
    return [each[first : first + share] for first in range(0, len(each), share)]
