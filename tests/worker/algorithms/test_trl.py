"""The losses beside those of TRL's trainers, where TRL is installed: its own loss functions on the same numbers."""

from collections import defaultdict
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.needs import require_trl
from tests.worker.algorithms.plain import Batch, algorithm_of, batch, padded, prepared, step_loss

pytestmark = pytest.mark.packages
REPLICAS = [list(range(12))]


def trls_trainer(now: torch.Tensor, **settings: Any) -> SimpleNamespace:
    """What TRL's loss reads of its trainer; the model's log-probs are ``now``."""
    same = lambda tensor, **_: tensor  # noqa: E731
    usual = {
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "beta": 0.0,
        "loss_type": "dapo",
        "importance_sampling_level": "token",
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "aux_loss_enabled": False,
        "use_vllm": False,
        "_entropy_bonus_enabled": False,
        "current_gradient_accumulation_steps": 1,
        "model": SimpleNamespace(training=False),
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        "accelerator": SimpleNamespace(gather=same, reduce=same, num_processes=1),
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_get_per_token_logps_and_entropies": lambda *_, **__: (now, torch.zeros_like(now), None),
    }
    return SimpleNamespace(**{**usual, **settings})


def trls_inputs(whole: Batch, advantages: torch.Tensor) -> dict[str, Any]:
    longest = max(whole.lengths)
    mask = torch.arange(longest) < torch.tensor(whole.lengths).unsqueeze(1)
    tokens = torch.ones(len(whole.lengths), longest, dtype=torch.int64)
    return {
        "prompt_ids": tokens,
        "prompt_mask": tokens,
        "completion_ids": tokens,
        "completion_mask": mask.int(),
        "advantages": advantages,
        "old_per_token_logps": padded(whole.old, longest),
        "old_logps": padded(whole.old, longest).sum(dim=1),
        "ref_per_token_logps": padded(whole.reference, longest),
        "num_items_in_batch": mask.sum(),
    }


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("rloo", {}),
        ("grpo", {}),
        ("grpo:loss=sequence", {"loss_type": "grpo"}),
        ("grpo:clip_high=0.28", {"epsilon_high": 0.28}),
        ("grpo:kl_coefficient=0.1", {"beta": 0.1}),
        ("grpo:kl_coefficient=0.1,loss=sequence", {"beta": 0.1, "loss_type": "grpo"}),
    ],
)
def test_the_loss_and_gradient_are_trls(text: str, settings: dict[str, Any]) -> None:
    require_trl()
    name = text.partition(":")[0]
    trainer = getattr(import_module(f"trl.trainer.{name}_trainer"), f"{name.upper()}Trainer")
    whole, algorithm = batch(7, groups=3, group=4), algorithm_of(text)
    now = padded(whole.now, max(whole.lengths)).requires_grad_()
    advantages = prepared(whole, REPLICAS, algorithm)[0][1]["advantages"]
    theirs = trainer._compute_loss(trls_trainer(now, **settings), None, trls_inputs(whole, advantages))
    theirs.backward()
    ours, _, gradients = step_loss(whole, REPLICAS, algorithm, 4)
    assert ours == pytest.approx(float(theirs.detach()), rel=1e-5)
    for number, length in enumerate(whole.lengths):
        assert gradients[number] == pytest.approx(now.grad[number, :length].tolist(), rel=1e-4, abs=1e-8)
