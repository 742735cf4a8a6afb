"""What uneven lengths make of a layout's passes: padding, the fullest replica, and decoding until the longest sample.

Replicas hold their samples in the order in which they are dealt, and a micro batch is padded to its own longest sample;
training shuffles them first, which changes the padding of single micro batches but not what is expected of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from suite.planner.work import Column
from suite.spec.lengths import Lengths
from suite.spec.manifest import SampleLengths
from suite.spec.resolve import drawn_lengths
from suite.spec.workload import Workload

#: Samples of which a plan looks at most at the lengths: more replicas than they fill have the same mean and tail.
MOST_DRAWN = 32768
#: And of samples that are all alike.
_ALIKE = 256
SEED = 1234  # that of a measurement nobody chose another for


@dataclass(frozen=True)
class Drawn:
    """Tokens of each sample's prompt and response, [N] each, and the mean of both together over all samples."""

    prompts: Column
    responses: Column

    @cached_property
    def mean(self) -> float:
        return float((self.prompts + self.responses).mean())


@dataclass(frozen=True)
class Pass:
    """Scoring and training passes of layouts, one number or column each: tokens of one sample, padding in, positions
    that a token meets in attention, and positions of a sample whose logits are computed."""

    tokens: Column
    attended: Column
    shown: Column

    @property
    def head_share(self) -> Column:
        return self.shown / self.tokens


@dataclass(frozen=True)
class Decoding:
    """Generation by the replica whose longest response is longest: ``prompt`` and ``new`` of its longest samples.

    The rest is what an engine meets that drops a sample once it is complete: tokens of all ``prompts``, ``steps`` of
    all samples after the first token, and ``read`` positions of the cache in them.
    """

    prompt: Column
    new: Column
    prompts: Column
    steps: Column
    read: Column


def drawn(workload: Workload, samples: int) -> Drawn:
    """The lengths of an iteration's samples, or of as many as are looked at."""
    if not workload.uneven:
        alike = np.ones(min(samples, max(_ALIKE, workload.micro_batch)))
        return Drawn(workload.prompt_tokens * alike, workload.new_tokens * alike)
    responses = workload.lengths or Lengths(kind="fixed", tokens=workload.new_tokens)
    prompts = workload.prompt_lengths or Lengths(kind="fixed", tokens=workload.prompt_tokens)
    return _drawn(prompts, responses, workload.group, looked_at(workload, samples))


def looked_at(workload: Workload, samples: int) -> int:
    """Of how many samples of uneven lengths these are drawn: all, or as many groups as ``MOST_DRAWN`` has room for."""
    return samples if samples <= MOST_DRAWN else max(1, MOST_DRAWN // workload.group) * workload.group


@lru_cache(maxsize=64)
def _drawn(prompts: Lengths, responses: Lengths, group: int, samples: int) -> Drawn:
    return of_samples(drawn_lengths(prompts, responses, group, samples, SEED))


def of_samples(lengths: SampleLengths) -> Drawn:
    """The lengths that a manifest has."""
    return Drawn(np.asarray(lengths.prompt, dtype=float), np.asarray(lengths.response, dtype=float))


def passes(
    by_devices: Mapping[int, Drawn], columns: Mapping[str, Column], packed: bool, balanced: bool
) -> tuple[Pass, Pass]:
    """The mean micro batch of the fullest replica, and the largest of all, of every layout.

    ``columns``: devices, rollouts of a replica, micro_batch and zero_stage. ``packed``: samples end to end. Under
    ``balanced`` the replicas have equal tokens. ZeRO-3's replicas wait for each other at every micro batch, others at
    the optimizer step.
    """
    names = ("devices", "rollouts", "micro_batch", "zero_stage")
    keys = np.stack([columns[name] for name in names], axis=1)
    keys[:, 3] = keys[:, 3] >= 3
    unique, back = np.unique(keys, axis=0, return_inverse=True)
    found = [
        _passes(by_devices[int(devices)], int(replica), int(micro), bool(in_step), packed, balanced)
        for devices, replica, micro, in_step in unique
    ]
    every = np.array(found).reshape(-1, 6)[back.reshape(-1)].T
    return Pass(*every[:3]), Pass(*every[3:])


def _passes(lengths: Drawn, replica: int, micro: int, in_step: bool, packed: bool, balanced: bool) -> tuple[float, ...]:
    samples = max(micro, min(replica, len(lengths.prompts)) // micro * micro)
    replicas = len(lengths.prompts) // samples
    shape = (replicas, samples // micro, micro)
    prompts, responses = (each[: replicas * samples].reshape(shape) for each in (lengths.prompts, lengths.responses))
    whole = prompts + responses
    if packed:
        tokens, pairs, shown = whole.sum(-1), (whole**2).sum(-1), responses.sum(-1)
    else:
        longest = whole.max(-1)
        tokens, pairs, shown = micro * longest, micro * longest**2, micro * responses.max(-1)
    largest = np.unravel_index(tokens.argmax(), tokens.shape)
    waited_for = [tokens, pairs, shown]
    if not balanced and in_step:
        waited_for = [np.take_along_axis(each, tokens.argmax(0)[None], 0) for each in waited_for]
    elif not balanced:
        waited_for = [each[tokens.sum(1).argmax()] for each in waited_for]
    chosen, count = [each.sum() for each in waited_for], waited_for[0].size * micro
    return (
        *(float(chosen[0] / count), float(chosen[1] / chosen[0]), float(chosen[2] / count)),
        *(float(tokens[largest] / micro), float(pairs[largest] / tokens[largest]), float(shown.max() / micro)),
    )


def decoding(by_devices: Mapping[int, Drawn], columns: Mapping[str, Column]) -> Decoding:
    """Generation of every layout; ``columns``: devices and rollouts of a replica."""
    keys = np.stack([columns["devices"], columns["rollouts"]], axis=1)
    unique, back = np.unique(keys, axis=0, return_inverse=True)
    found = [_decoding(by_devices[int(devices)], int(replica)) for devices, replica in unique]
    return Decoding(*np.array(found).reshape(-1, 5)[back.reshape(-1)].T)


def _decoding(lengths: Drawn, replica: int) -> tuple[float, ...]:
    samples = min(replica, len(lengths.prompts))
    replicas = len(lengths.prompts) // samples
    prompts, responses = (
        each[: replicas * samples].reshape(replicas, samples) for each in (lengths.prompts, lengths.responses)
    )
    slowest = int((responses.max(1) + prompts.max(1) / (1 + prompts.max())).argmax())
    own, new = prompts[slowest], responses[slowest]
    more = replica / samples  # of a replica with more samples than are looked at
    steps = new - 1
    return (
        float(own.max()),
        float(new.max()),
        float(more * own.sum()),
        float(more * steps.sum()),
        float(more * (steps * own + steps * (steps - 1) / 2).sum()),
    )
