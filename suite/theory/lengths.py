"""What uneven lengths make of an iteration: exact sums over its samples, and the moments of a replica's decoding."""

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from suite.spec.layout import Layout
from suite.spec.manifest import SampleLengths, Work
from suite.spec.resolve import sample_lengths
from suite.spec.workload import Workload

#: Tokens of prompt and response, and how many samples have so many.
Alike = tuple[int, int, int]


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
        return _sums([(workload.prompt_tokens, workload.new_tokens, samples)], causal)
    if len(lengths.prompt) != samples:
        raise ValueError(f"lengths of {len(lengths.prompt)} samples, but there are {samples}")
    return _sums(_each(lengths), causal)


def _sums(alike: Sequence[Alike], causal: bool) -> Totals:
    def pairs(tokens: int) -> int:
        return tokens * (tokens + 1) // 2 if causal else tokens * tokens

    return Totals(
        samples=sum(times for _, _, times in alike),
        prompt=sum(times * prompt for prompt, _, times in alike),
        response=sum(times * response for _, response, times in alike),
        pairs=sum(times * pairs(prompt + response) for prompt, response, times in alike),
        prompt_pairs=sum(times * pairs(prompt) for prompt, _, times in alike),
        decode_pairs=sum(
            times * ((response - 1) * prompt + (response - 1) * response // 2) for prompt, response, times in alike
        ),
    )


def _each(lengths: SampleLengths) -> list[Alike]:
    return [(prompt, response, 1) for prompt, response in zip(lengths.prompt, lengths.response, strict=True)]


def drawn(workload: Workload, samples: int, lengths: SampleLengths | None) -> SampleLengths | None:
    """``lengths`` where they are known; of an uneven workload those that seed 0 draws; None where all are even."""
    return sample_lengths(workload, samples, 0) if lengths is None else lengths


def generated_together(workload: Workload, work: Work, layout: Layout) -> list[list[Alike]]:
    """The samples of each replica, which are generated at once; of each generating rank, where some generate alone.

    Where all are even one replica stands for all.
    """
    share = work.global_rollouts // layout.generation_ranks if layout.generation_ranks else work.replica_rollouts
    lengths = drawn(workload, work.global_rollouts, work.lengths)
    if lengths is None:
        return [[(workload.prompt_tokens, workload.new_tokens, share)]]
    each = _each(lengths)
    return [each[first : first + share] for first in range(0, len(each), share)]


def decode_batches(samples: Sequence[Alike], at_once: int | None = None) -> list[tuple[int, int]]:
    """Decode steps until the last of ``samples`` is complete, and how many run in each, ``at_once`` at most: (steps,
    samples). The next in their order takes the place of one that is complete."""
    each = [response - 1 for _, response, times in samples for _ in range(times)]
    places = [0] * min(len(each), at_once or len(each))
    begins = [heapq.heapreplace(places, places[0] + steps) for steps in each]
    ends = sorted(begin + steps for begin, steps in zip(begins, each, strict=True))
    begins.sort()
    moments = pairwise(sorted({*begins, *ends}))
    runs = [(end - begin, bisect_right(begins, begin) - bisect_right(ends, begin)) for begin, end in moments]
    return [(steps, running) for steps, running in runs if running]


def positions_read(samples: Sequence[Alike]) -> int:
    """Cached positions that all decode steps of ``samples`` read."""
    return sum(
        times * ((response - 1) * prompt + (response - 1) * (response - 2) // 2) for prompt, response, times in samples
    )


def positions_held(samples: Sequence[Alike]) -> int:
    """The most cached positions at any one time, where a complete sample's are freed; its last token needs none."""
    prompts, running, most = 0, 0, 0
    for prompt, response, times in sorted(samples, key=lambda alike: alike[1], reverse=True):
        prompts, running = prompts + times * prompt, running + times
        # these still run when the shortest of them is about to be complete
        most = max(most, prompts + running * (response - 1))
    return most


def longest_sample(samples: Iterable[Alike]) -> int:
    """Cached positions of the longest of ``samples`` when it is about to be complete."""
    return max(prompt + response for prompt, response, _ in samples) - 1


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
