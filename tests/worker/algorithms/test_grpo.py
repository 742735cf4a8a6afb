"""GRPO against loops over lists, written from the papers' formulas; samples are uneven, padded, on two replicas."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

import pytest

from suite.spec.algorithms import Algorithm as Spec
from suite.worker.algorithms import build_algorithm
from suite.worker.algorithms.base import Algorithm
from tests.worker.algorithms.plain import Batch, batch, by_sample, clipped, k3, step_loss

#: the second group lies across both
REPLICAS = [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def grpo(text: str) -> Algorithm:
    return build_algorithm({"algorithm": Spec.model_validate(text).model_dump(mode="json")})


def plain_advantages(whole: Batch, scale: bool) -> list[float]:
    found = []
    for number, score in enumerate(whole.scores):
        first = number // whole.group * whole.group
        others = whole.scores[first : first + whole.group]
        found.append((score - fmean(others)) / ((stdev(others) + 1e-4) if scale else 1))
    return found


def plain_loss(whole: Batch, options: dict[str, Any]) -> float:
    advantages = plain_advantages(whole, options["scale"])
    by_row = []
    for advantage, now, old, reference in zip(advantages, whole.now, whole.old, whole.reference, strict=True):
        by_row.append(
            [
                -clipped(math.exp(new - before), advantage, options["clip_low"], options["clip_high"])
                + options["kl_coefficient"] * k3(new, other)
                for new, before, other in zip(now, old, reference, strict=True)
            ]
        )
    if options["loss"] == "sequence":
        return fmean(fmean(row) for row in by_row)
    return fmean(term for row in by_row for term in row)


@pytest.mark.parametrize("scale", [True, False])
def test_advantages_compare_a_sample_with_its_group_wherever_the_group_lies(scale: bool) -> None:
    whole = batch(1, groups=3, group=4)
    found = by_sample(whole, REPLICAS, grpo(f"grpo:scale={scale}"))
    expected = plain_advantages(whole, scale)
    assert {number: each[0] for number, each in found.items()} == pytest.approx(dict(enumerate(expected)), rel=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "grpo",
        "grpo:loss=sequence",
        "grpo:scale=no,clip_high=0.28",
        "grpo:kl_coefficient=0.1",
        "grpo:kl_coefficient=0.1,loss=sequence,clip_low=0.1",
    ],
)
def test_the_loss_of_a_step_is_that_of_the_papers(text: str) -> None:
    whole, options = batch(2, groups=3, group=4), dict(Spec.model_validate(text).options)
    for micro_rows in (1, 2, 3):
        loss, parts, _ = step_loss(whole, REPLICAS, grpo(text), micro_rows)
        assert loss == pytest.approx(plain_loss(whole, options), rel=1e-5)
        assert loss == pytest.approx(parts["policy_loss"] + options["kl_coefficient"] * parts.get("kl_loss", 0))
        assert 0 < parts["clip_share"] < 1


def test_one_gradient_follows_from_any_division_into_replicas_and_micro_batches() -> None:
    whole, algorithm = batch(3, groups=2, group=6), grpo("grpo:kl_coefficient=0.1,loss=sequence")
    one = step_loss(whole, [list(range(12))], algorithm, 12)[2]
    shuffled = step_loss(whole, [[11, 0, 5, 7, 2, 9], [1, 10, 3, 4, 8, 6]], algorithm, 2)[2]
    for number, gradient in one.items():
        assert shuffled[number] == pytest.approx(gradient, rel=1e-4, abs=1e-8)


def test_no_gradient_where_the_clip_holds_and_the_upper_bound_is_its_own() -> None:
    whole = Batch(2, [1.0, 0.0], [[-1.0, -1.0], [-1.0]], [[-0.77, -0.7], [-1.3]], [[0.0, 0.0], [0.0]])
    gradient = step_loss(whole, [[0, 1]], grpo("grpo:clip_high=0.28"), 2)[2]
    assert gradient[0][0] != 0, "a ratio of 1.26 is within"
    assert (gradient[0][1], gradient[1][0]) == (0, 0)


@pytest.mark.parametrize("score", [0.5, 0.1, 3e7])
def test_equal_scores_give_advantages_of_zero_and_a_loss_that_is_a_number(score: float) -> None:
    whole = batch(4, groups=2, group=6, scores=[score] * 12)
    found = by_sample(whole, REPLICAS, grpo("grpo"))
    assert {value for each in found.values() for value in each} == {0.0}
    loss, _, gradients = step_loss(whole, REPLICAS, grpo("grpo"), 3)
    assert loss == 0
    assert not any(any(row) for row in gradients.values())


def test_the_reference_is_asked_only_where_kl_counts() -> None:
    assert not grpo("grpo").uses_reference
    assert grpo("grpo:kl-coefficient=0.001").uses_reference
