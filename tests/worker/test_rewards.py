"""Scores of finished samples."""

from __future__ import annotations

import pytest
import torch

from suite.worker.rank import ConfigError
from suite.worker.rewards import score_samples

RESPONSES = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7], [0, 0, 9, 9]])


def test_a_constant_reward_reads_no_token() -> None:
    assert score_samples({"kind": "constant", "value": 0.5}, RESPONSES).tolist() == [0.5, 0.5, 0.5]


def test_token_below_is_the_share_of_small_ids() -> None:
    assert score_samples({"kind": "token-below", "threshold": 4}, RESPONSES).tolist() == [1.0, 0.0, 0.5]


def test_an_unknown_reward_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'model'"):
        score_samples({"kind": "model"}, RESPONSES)
