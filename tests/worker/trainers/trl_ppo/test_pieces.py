"""What needs no TRL: the configuration, the reward module, and what is held against the engine that is there."""

from typing import Any

import pytest
import torch

from suite.worker.asked import score_samples
from suite.worker.manifest import stream_seed
from suite.worker.samples import Samples
from suite.worker.trainers.on_accelerate import accelerate_variables
from suite.worker.trainers.trl_ppo.hooks import Scores
from suite.worker.trainers.trl_ppo.trainer import ppo_config
from tests.worker.tiny import tiny_body


def manifest(**work: Any) -> dict[str, Any]:
    """Two ranks, two optimizer steps of two micro batches of two samples each."""
    usual = {"prompt_tokens": 5, "new_tokens": 6, "rollouts": 8, "optimizer_steps": 2, "ppo_epochs": 3}
    return tiny_body(2, workload={**usual, **work}, layout={"zero_stage": 2})


def test_one_update_is_one_iteration_and_accelerate_steps_once_a_mini_batch():
    arguments = ppo_config(manifest(), iterations=5, folder="here")
    assert arguments["total_episodes"] == 5 * 16
    assert arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"] == 8
    assert (arguments["num_mini_batches"], arguments["num_ppo_epochs"]) == (2, 3)
    assert accelerate_variables(manifest(), "file")["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "2"


REWARDS = {"kind": "constant", "value": 0.5}, {"kind": "token-below", "threshold": 80}, {"kind": "pseudo"}


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward["kind"])
def test_every_kind_gives_each_rank_the_scores_that_the_suite_gives_its_samples(reward):
    tokens, body = torch.arange(16 * 11).reshape(16, 11), manifest(reward=reward)
    expected = score_samples(reward, Samples.even(tokens, 5), stream_seed(body, 3))
    for rank in range(2):
        own = slice(rank * 8, rank * 8 + 8)
        module = Scores(body, rank, lambda: 3)
        backbone = getattr(module, module.base_model_prefix)
        found = module.score(backbone(input_ids=tokens[own], attention_mask=None).hidden_states[-1])
        assert found.shape == (8, 11, 1)
        assert torch.equal(found[:, -1, 0], expected[own])
