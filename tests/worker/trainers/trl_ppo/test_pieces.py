"""What needs no TRL: the configuration, the reward module, and what is held against the engine that is there."""

from typing import Any

import torch

from suite.worker.manifest import stream_seed
from suite.worker.rewards import score_samples
from suite.worker.samples import Samples
from suite.worker.trainers.on_accelerate import accelerate_variables
from suite.worker.trainers.trl_ppo.config import ppo_config
from suite.worker.trainers.trl_ppo.reward import Scores
from tests.worker.tiny import tiny_body


def manifest(layout: dict[str, Any] | None = None, **work: Any) -> dict[str, Any]:
    """Two ranks, two optimizer steps of two micro batches of two samples each."""
    body = tiny_body(
        2,
        workload={"prompt_tokens": 5, "new_tokens": 6, "rollouts": 8, "optimizer_steps": 2, "ppo_epochs": 3},
        layout={"zero_stage": 2},
    )
    body["workload"].update(work)
    body["layout"].update(layout or {})
    return body


class TestConfiguration:
    def test_one_update_is_one_iteration_and_accelerate_steps_once_a_mini_batch(self) -> None:
        arguments = ppo_config(manifest(), iterations=5, folder="here")
        assert arguments["total_episodes"] == 5 * 16
        assert arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"] == 8
        assert (arguments["num_mini_batches"], arguments["num_ppo_epochs"]) == (2, 3)
        variables = accelerate_variables(manifest(), "file")
        assert variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "2"


class TestReward:
    def test_every_kind_gives_each_rank_the_scores_that_the_suite_gives_its_samples(self) -> None:
        tokens = torch.arange(16 * 11).reshape(16, 11)
        for reward in (
            {"kind": "constant", "value": 0.5},
            {"kind": "token-below", "threshold": 80},
            {"kind": "pseudo"},
        ):
            body = manifest(reward=reward)
            seed = stream_seed(body, 3)
            expected = score_samples(reward, Samples.even(tokens, 5), seed)
            for rank in range(2):
                own = tokens[rank * 8 : rank * 8 + 8]
                module = Scores(body, rank, lambda: 3)
                states = getattr(module, module.base_model_prefix)(input_ids=own, attention_mask=None).hidden_states
                found = module.score(states[-1])
                assert found.shape == (8, 11, 1)
                assert torch.equal(found[:, -1, 0], expected[rank * 8 : rank * 8 + 8])
