"""Optimizer steps that fp16 skips are counted, by DeepSpeed's own counter, which is scripted here.

fp16 trains on no CPU: no real overflow is made.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.worker.engines.deepspeed.engine import DeepSpeedEngine
from suite.worker.samples import Samples


class ScriptedModel:
    """What ``deepspeed.initialize`` returns, as far as training touches it; step n is skipped or it is not."""

    def __init__(self, skips: list[bool], output: Any) -> None:
        self.global_steps = self.skipped_steps = 0
        self._skips, self._output = skips, output

    def __call__(self, rows: Samples) -> Any:
        return self._output

    def backward(self, loss: torch.Tensor) -> None:
        assert loss.dim() == 0

    def step(self) -> None:
        self.skipped_steps += self._skips[self.global_steps]
        self.global_steps += 1

    def get_global_grad_norm(self) -> None:
        return None


def counted(policy: list[bool], critic: list[bool] | None) -> list[float]:
    """``skipped_steps`` of each train call, one micro batch each."""
    engine, response = DeepSpeedEngine.__new__(DeepSpeedEngine), torch.zeros(2, 2)
    engine._policy, engine._micro_batch = SimpleNamespace(train=lambda: None), 2
    engine._engine = ScriptedModel(policy, (response, response))
    engine._packs = False
    engine._critic = None if critic is None else ScriptedModel(critic, response)
    samples, batch = Samples.even(torch.zeros(2, 4), 2), {"logprobs": response, "values": response}
    parts = dict.fromkeys(("loss", "policy_loss", "value_loss"), torch.zeros(()))
    return [engine.train(samples, batch, lambda *_: (torch.zeros(()), parts))["skipped_steps"] for _ in policy]


@pytest.mark.parametrize(
    ("policy", "critic", "skipped"),
    [
        ([True, False, True], None, [1.0, 0.0, 1.0]),
        ([False, True], [False, False], [0.0, 1.0]),
        ([False, False], [False, True], [0.0, 1.0]),
        ([False, True], [False, True], [0.0, 1.0]),
    ],
    ids=["no critic", "policy alone", "critic alone", "both at once are one step"],
)
def test_a_step_is_counted_where_it_was_skipped(policy, critic, skipped):
    assert counted(policy, critic) == skipped
