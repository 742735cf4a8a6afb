"""Scores of samples, and PPO's arithmetic against references in plain Python floats from the papers' formulas."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.worker import ppo
from suite.worker.asked import score_samples
from suite.worker.samples import Samples
from tests.worker.algorithms.plain import clipped

NUMBERS = st.floats(-3, 3, width=32)
SHARES = st.floats(0, 1)


@st.composite
def tables(draw: st.DrawFn, count: int) -> list[list[list[float]]]:
    """``count`` tables of the same few rows and columns."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    row = st.lists(NUMBERS, min_size=columns, max_size=columns)
    return [draw(st.lists(row, min_size=rows, max_size=rows)) for _ in range(count)]


def doubles(table: list[list[float]]) -> torch.Tensor:
    return torch.tensor(table, dtype=torch.float64)


def near(actual: torch.Tensor, expected: list[list[float]]) -> bool:
    return torch.allclose(actual, doubles(expected), rtol=1e-9, atol=1e-9)


@given(tables(2), NUMBERS, SHARES)
def test_each_token_pays_for_its_kl_and_the_last_carries_the_score(both, score, coefficient):
    logprobs, reference = both
    mask = torch.ones(len(logprobs), len(logprobs[0]), dtype=torch.bool)
    scores = torch.full((len(logprobs),), score, dtype=torch.float64)
    rewards = ppo.penalised_rewards(scores, doubles(logprobs), doubles(reference), coefficient, mask)
    last = len(logprobs[0]) - 1
    expected = [
        [-coefficient * (row[j] - other[j]) + (score if j == last else 0) for j in range(len(row))]
        for row, other in zip(logprobs, reference, strict=True)
    ]
    assert near(rewards, expected)


@given(tables(2), SHARES, SHARES)
def test_advantages_are_the_discounted_sum_of_all_later_errors(both, discount, gae_lambda):
    rewards, values = both
    advantages, returns = ppo.advantages_and_returns(doubles(rewards), doubles(values), discount, gae_lambda)

    def advantage(reward: list[float], value: list[float], start: int) -> float:
        following = [*value[1:], 0.0]
        errors = [r + discount * n - v for r, n, v in zip(reward, following, value, strict=True)]
        return math.fsum((discount * gae_lambda) ** (j - start) * errors[j] for j in range(start, len(errors)))

    expected = [[advantage(r, v, j) for j in range(len(r))] for r, v in zip(rewards, values, strict=True)]
    assert near(advantages, expected)
    assert near(returns - doubles(values), expected)


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.lists(NUMBERS, min_size=1, max_size=12))
def test_whitening_two_ranks_with_added_moments_is_whitening_them_together(first, second):
    parts = [torch.tensor(part, dtype=torch.float64) for part in (first, second)]
    added = ppo.moments(parts[0]) + ppo.moments(parts[1])
    mean = math.fsum(first + second) / len(first + second)
    variance = math.fsum((number - mean) ** 2 for number in first + second) / len(first + second)
    for part, numbers in zip(parts, (first, second), strict=True):
        expected = [(number - mean) / math.sqrt(variance + 1e-8) for number in numbers]
        assert torch.allclose(ppo.whiten(part, added), torch.tensor(expected, dtype=torch.float64), atol=1e-4)


def policy_term(logprob: float, before: float, advantage: float, clip: float) -> float:
    return -clipped(math.exp(logprob - before), advantage, clip, clip)


def value_term(value: float, before: float, goal: float, clip: float) -> float:
    near_before = before + max(-clip, min(clip, value - before))
    return max((value - goal) ** 2, (near_before - goal) ** 2) / 2


@pytest.mark.parametrize(("loss", "term"), [(ppo.policy_loss, policy_term), (ppo.value_loss, value_term)])
@given(three=tables(3), clip=st.floats(0.01, 0.9))
def test_a_loss_takes_the_worse_of_plain_and_clipped(loss, term, three, clip):
    terms = [term(*numbers, clip) for rows in zip(*three, strict=True) for numbers in zip(*rows, strict=True)]
    each, *others = map(doubles, three)
    found = loss(each, *others, clip, torch.full_like(each, 1 / len(terms)))
    assert float(found) == pytest.approx(math.fsum(terms) / len(terms), rel=1e-9, abs=1e-9)


PROMPT = 9
#: a prompt of one token and a response, padded behind
SAMPLES = Samples(
    torch.tensor([[PROMPT, 0, 1, 2, 3], [PROMPT, 4, 5, 6, 7], [PROMPT, 0, 9, 0, 0]]), [1, 1, 1], [4, 4, 2]
)


@pytest.mark.parametrize(
    ("reward", "scores"),
    [({"kind": "constant", "value": 0.5}, [0.5, 0.5, 0.5]), ({"kind": "token-below", "threshold": 4}, [1.0, 0.0, 0.5])],
)
def test_a_constant_reads_no_token_and_token_below_counts_real_ones(reward, scores):
    assert score_samples(reward, SAMPLES, 0).tolist() == scores


def test_the_pseudo_reward_varies_by_sample_and_is_the_seeds():
    first, again, other = (score_samples({"kind": "pseudo"}, SAMPLES, seed).tolist() for seed in (5, 5, 6))
    assert first == again != other
    assert len(set(first)) == 3
    assert all(0 <= score < 1 for score in first)
