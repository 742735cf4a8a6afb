"""AReaL's workflow of one sample: the manifest's prompt as it is, and its score. In AReaL's rollout workers alone."""

import json
import uuid
from typing import Any, Dict

import torch
from areal.api import ModelRequest, RolloutWorkflow

from suite.worker.trainers.logged.inputs import Rewards


class NumberedWorkflow(RolloutWorkflow):  # type: ignore[misc]
    """Prompts are numbers of tokens, so no tokenizer takes part."""

    def __init__(self, gconfig: Any, manifest: str) -> None:
        """``gconfig``: how to generate; ``manifest``: the path of the run's."""
        self._gconfig = gconfig
        with open(manifest, encoding="utf-8") as file:
            self._rewards = Rewards(json.load(file))

    async def arun_episode(self, engine: Any, data: Dict[str, Any]) -> Dict[str, torch.Tensor]:
        request = ModelRequest(
            rid=uuid.uuid4().hex, input_ids=list(data["tokens"]), gconfig=self._gconfig.new(n_samples=1)
        )
        response = await engine.agenerate(request)
        prompt, generated = response.input_len, response.output_len
        tokens = list(response.input_tokens) + list(response.output_tokens)
        reward = self._rewards.next(int(data["iteration"]), int(data["number"]))
        return {
            "input_ids": torch.tensor([tokens], dtype=torch.int32),
            "loss_mask": torch.tensor([[0] * prompt + [1] * generated], dtype=torch.int32),
            "logprobs": torch.tensor([[0.0] * prompt + list(response.output_logprobs)], dtype=torch.float32),
            "versions": torch.tensor([[-1] * prompt + list(response.output_versions)], dtype=torch.int32),
            "attention_mask": torch.ones(1, len(tokens), dtype=torch.bool),
            "rewards": torch.tensor([reward], dtype=torch.float32),
        }
