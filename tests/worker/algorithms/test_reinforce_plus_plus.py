"""REINFORCE++ against loops over lists; samples are uneven, padded and on two replicas."""

from __future__ import annotations

import math
from statistics import fmean, pstdev

import pytest

from suite.spec.algorithms import Algorithm as Spec
from suite.worker.algorithms import build_algorithm
from suite.worker.algorithms.base import Algorithm
from tests.worker.algorithms.plain import Batch, batch, by_sample, clipped, step_loss

REPLICAS = [[0, 1, 2, 3], [4, 5, 6, 7]]


def reinforce(text: str) -> Algorithm:
    return build_algorithm({"algorithm": Spec.model_validate(text).model_dump(mode="json")})


def plain_advantages(whole: Batch, kl_coefficient: float) -> list[list[float]]:
    returns = []
    for score, old, reference in zip(whole.scores, whole.old, whole.reference, strict=True):
        penalties = [kl_coefficient * (a - b) for a, b in zip(old, reference, strict=True)]
        returns.append([score - math.fsum(penalties[token:]) for token in range(len(old))])
    everything = [each for row in returns for each in row]
    mean, deviation = fmean(everything), pstdev(everything)
    return [[(each - mean) / deviation for each in row] for row in returns]


@pytest.mark.parametrize("coefficient", [0.0, 0.01, 1.0])
def test_advantages_are_returns_to_go_normalised_over_every_token_of_all(coefficient: float) -> None:
    whole = batch(1, groups=8, group=1)
    found = by_sample(whole, REPLICAS, reinforce(f"reinforce++:kl_coefficient={coefficient}"))
    for number, expected in enumerate(plain_advantages(whole, coefficient)):
        assert found[number] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("micro_rows", [1, 2, 4])
def test_the_loss_is_the_mean_over_tokens_of_the_clipped_objective(micro_rows: int) -> None:
    whole = batch(2, groups=8, group=1)
    terms = [
        -clipped(math.exp(new - before), advantage, 0.2, 0.2)
        for row, now, old in zip(plain_advantages(whole, 0.01), whole.now, whole.old, strict=True)
        for advantage, new, before in zip(row, now, old, strict=True)
    ]
    loss, _, _ = step_loss(whole, REPLICAS, reinforce("reinforce++"), micro_rows)
    assert loss == pytest.approx(fmean(terms), rel=1e-4)


def test_equal_scores_without_kl_give_advantages_of_zero() -> None:
    whole = batch(3, groups=8, group=1, scores=[0.1] * 8)
    found = by_sample(whole, REPLICAS, reinforce("reinforce++:kl_coefficient=0"))
    assert {value for each in found.values() for value in each} == {0.0}


def test_groups_are_neither_needed_nor_looked_at() -> None:
    alone, together = batch(4, groups=8, group=1), batch(4, groups=2, group=4)
    algorithm = reinforce("reinforce++")
    assert by_sample(alone, REPLICAS, algorithm) == by_sample(together, REPLICAS, algorithm)
