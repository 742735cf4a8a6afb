"""RLOO against loops over lists; samples are uneven, padded, on two replicas with a group across both."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from suite.spec.algorithms import Algorithm as Spec
from suite.worker.algorithms import build_algorithm
from suite.worker.algorithms.base import Algorithm
from tests.worker.algorithms.plain import Batch, batch, by_sample, clipped, step_loss

REPLICAS = [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def rloo(text: str) -> Algorithm:
    return build_algorithm({"algorithm": Spec.model_validate(text).model_dump(mode="json")})


def plain_advantages(whole: Batch, kl_coefficient: float) -> list[float]:
    rewards = [
        score - kl_coefficient * math.fsum(a - b for a, b in zip(old, reference, strict=True))
        for score, old, reference in zip(whole.scores, whole.old, whole.reference, strict=True)
    ]
    found = []
    for number, reward in enumerate(rewards):
        first = number // whole.group * whole.group
        found.append(reward - fmean(rewards[each] for each in range(first, first + whole.group) if each != number))
    return found


@pytest.mark.parametrize("coefficient", [0.0, 0.05, 2.0])
@pytest.mark.parametrize("group", [2, 4, 6])
def test_the_baseline_is_the_mean_of_the_others_wherever_they_lie(coefficient: float, group: int) -> None:
    whole = batch(1, groups=12 // group, group=group)
    found = by_sample(whole, REPLICAS, rloo(f"rloo:kl_coefficient={coefficient}"))
    expected = dict(enumerate(plain_advantages(whole, coefficient)))
    assert {number: each[0] for number, each in found.items()} == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("micro_rows", [1, 2, 6])
def test_the_loss_is_the_mean_over_samples_of_the_clipped_ratio_of_whole_responses(micro_rows: int) -> None:
    whole = batch(2, groups=3, group=4)
    terms = [
        -clipped(math.exp(math.fsum(now) - math.fsum(old)), advantage, 0.2, 0.3)
        for advantage, now, old in zip(plain_advantages(whole, 0.05), whole.now, whole.old, strict=True)
    ]
    loss, parts, _ = step_loss(whole, REPLICAS, rloo("rloo:clip_high=0.3"), micro_rows)
    assert loss == pytest.approx(fmean(terms), rel=1e-5) == parts["policy_loss"]


def test_before_the_policy_moves_the_gradient_is_reinforces() -> None:
    moved = batch(3, groups=3, group=4)
    whole = Batch(moved.group, moved.scores, moved.old, moved.old, moved.reference)
    gradients = step_loss(whole, REPLICAS, rloo("rloo"), 3)[2]
    for number, advantage in enumerate(plain_advantages(whole, 0.05)):
        assert gradients[number] == pytest.approx([-advantage / 12] * whole.lengths[number], rel=1e-4, abs=1e-7)


def test_equal_scores_without_kl_give_advantages_of_zero() -> None:
    whole = batch(4, groups=3, group=4, scores=[0.1] * 12)
    found = by_sample(whole, REPLICAS, rloo("rloo:kl_coefficient=0"))
    assert {value for each in found.values() for value in each} == {0.0}
    assert step_loss(whole, REPLICAS, rloo("rloo:kl_coefficient=0"), 2)[0] == 0
