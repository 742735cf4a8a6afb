"""Scores of finished samples."""

import pytest
import torch

from suite.worker.rank import ConfigError
from suite.worker.rewards import score_samples
from suite.worker.samples import Samples

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


def test_the_pseudo_reward_varies_by_sample_and_is_the_seeds() -> None:
    first, again, other = (score_samples({"kind": "pseudo"}, SAMPLES, seed).tolist() for seed in (5, 5, 6))
    assert first == again != other
    assert len(set(first)) == 3
    assert all(0 <= score < 1 for score in first)


def test_an_unknown_reward_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'model'"):
        score_samples({"kind": "model"}, SAMPLES, 0)
