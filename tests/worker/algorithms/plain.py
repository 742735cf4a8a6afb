"""A batch of samples as lists of numbers, and as two replicas see it: groups may lie across both."""

import math
import random
from dataclasses import dataclass

import torch

from suite.spec.algorithms import Algorithm as Spec
from suite.worker.algorithms import build_algorithm
from suite.worker.algorithms.base import Algorithm, Rollouts, Tensors
from suite.worker.samples import Samples

PROMPT = 2
Table = list[list[float]]


@dataclass(frozen=True)
class Batch:
    """Scores by sample; log-probs of rollout, of now and of the reference by sample and token, uneven."""

    group: int
    scores: list[float]
    old: Table
    now: Table
    reference: Table

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.old]


def batch(seed: int, groups: int, group: int, longest: int = 6, scores: list[float] | None = None) -> Batch:
    """Random log-probs; the policy has moved since, in places beyond any clip."""
    draw = random.Random(seed)
    samples = groups * group
    lengths = [draw.randint(1, longest) for _ in range(samples)]
    old = [[-draw.uniform(0.1, 4) for _ in range(length)] for length in lengths]
    now = [[value + draw.uniform(-0.5, 0.5) for value in row] for row in old]
    reference = [[value + draw.uniform(-1, 1) for value in row] for row in old]
    return Batch(group, scores or [draw.random() for _ in range(samples)], old, now, reference)


def algorithm_of(text: str) -> Algorithm:
    """As the command line names it."""
    return build_algorithm({"algorithm": Spec.model_validate(text).model_dump(mode="json"), "ppo": {}})


def padded(table: Table, longest: int, filler: float = 0.0) -> torch.Tensor:
    return torch.tensor([row + [filler] * (longest - len(row)) for row in table])


def rollouts(whole: Batch, numbers: list[int], algorithm: Algorithm) -> Rollouts:
    """What the replica with these samples has."""
    lengths = [whole.lengths[number] for number in numbers]
    longest = max(lengths)
    reference = padded([whole.reference[number] for number in numbers], longest)
    samples = Samples(torch.ones(len(numbers), PROMPT + longest, dtype=torch.int64), [PROMPT] * len(numbers), lengths)
    return Rollouts(
        samples=samples,
        mask=samples.mask(),
        logprobs=padded([whole.old[number] for number in numbers], longest),
        values=None,
        reference=reference if algorithm.uses_reference else None,
        all_scores=torch.tensor(whole.scores),
        sample_indices=torch.tensor(numbers),
        group=whole.group,
    )


def prepared(whole: Batch, replicas: list[list[int]], algorithm: Algorithm) -> list[tuple[Rollouts, Tensors]]:
    """What each replica trains on. The sums that they ask each other for are taken twice: first they are collected."""
    asked: list[torch.Tensor] = []
    for numbers in replicas:
        algorithm.prepare(rollouts(whole, numbers, algorithm), lambda mine: asked.append(mine) or mine)
    total = sum(asked[1:], asked[0]) if asked else torch.zeros(())
    own = [rollouts(whole, numbers, algorithm) for numbers in replicas]
    return [(each, algorithm.prepare(each, lambda _: total)) for each in own]


def by_sample(whole: Batch, replicas: list[list[int]], algorithm: Algorithm) -> dict[int, list[float]]:
    """The advantages of each sample: one number, or one a token."""
    found = {}
    for numbers, (each, part) in zip(replicas, prepared(whole, replicas, algorithm), strict=True):
        for row, number in enumerate(numbers):
            advantages = part["advantages"][row]
            found[number] = advantages[each.mask[row]].tolist() if advantages.dim() else [float(advantages)]
    return found


def step_loss(
    whole: Batch, replicas: list[list[int]], algorithm: Algorithm, micro_rows: int, filler: float = -50.0
) -> tuple[float, dict[str, float], dict[int, list[float]]]:
    """Loss and parts of one optimizer step over all samples, and d loss / d log-prob by sample: the mean over
    micro batches and replicas, as engines take it. Behind a response the model's log-probs are ``filler``."""
    both = prepared(whole, replicas, algorithm)
    weights = [algorithm.weights(each.mask) for each, _ in both]
    everything = float(sum(weight.double().sum() for weight in weights))
    parts = sum(len(numbers) for numbers in replicas) // micro_rows
    totals: dict[str, float] = {}
    gradients = {}
    for numbers, (each, part), weight in zip(replicas, both, weights, strict=True):
        tensors = {**part, "logprobs": each.logprobs, "mask": each.mask, "weight": weight * (parts / everything)}
        now = padded([whole.now[number] for number in numbers], each.samples.longest_response, filler)
        now.requires_grad_()
        first = 0
        for micro, rows in each.samples.micro_batches(micro_rows, tensors):
            chosen = now[first : first + micro_rows, : micro.longest_response]
            loss, found = algorithm.loss(chosen, None, rows)
            (loss / parts).backward()
            for name, value in found.items():
                totals[name] = totals.get(name, 0.0) + float(value) / parts
            first += micro_rows
        for row, number in enumerate(numbers):
            gradients[number] = now.grad[row, : whole.lengths[number]].tolist()
            assert not now.grad[row, whole.lengths[number] :].any(), "padding has no gradient"
    return totals.pop("loss"), totals, gradients


def clipped(ratio: float, advantage: float, low: float, high: float) -> float:
    """The objective of one action."""
    return min(ratio * advantage, max(1 - low, min(1 + high, ratio)) * advantage)


def k3(now: float, reference: float) -> float:
    return math.exp(reference - now) - (reference - now) - 1
