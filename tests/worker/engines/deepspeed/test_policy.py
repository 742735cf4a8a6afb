"""The policy of the deepspeed engine, on whichever transformers builds it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from suite.worker.engines.deepspeed.policy import Policy, build_config, freeze_below, recompute_blocks

SIZE: dict[str, Any] = {
    "vocab": 32,
    "positions": 8,
    "hidden": 16,
    "ffn": 32,
    "heads": 2,
    "layers": 3,
    "tied_embeddings": True,
}


def trained(recompute: bool) -> tuple[dict[str, torch.Tensor], int]:
    """Gradients of one pass over the last two of three blocks, and how often the last block ran."""
    torch.manual_seed(0)
    policy = Policy(build_config(SIZE))
    freeze_below(policy, 2)
    if recompute:
        recompute_blocks(policy)
    runs: list[int] = []
    policy.transformer.h[-1].ln_1.register_forward_hook(lambda *_: runs.append(1))
    logprobs, values = policy.train()(torch.arange(8).reshape(2, 4), prompt_tokens=2)
    (logprobs.sum() + values.sum()).backward()
    gradients = {name: parameter.grad for name, parameter in policy.named_parameters() if parameter.requires_grad}
    return gradients, len(runs)


@pytest.mark.parametrize("has_a_choice", [True, False], ids=["now", "before transformers 4.35"])
def test_recomputed_blocks_run_twice_and_train_alike(has_a_choice: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_a_choice:
        monkeypatch.setattr(Policy, "gradient_checkpointing_enable", lambda policy: pytest.fail("the reentrant kind"))
    kept, again = trained(recompute=False), trained(recompute=True)
    assert (kept[1], again[1]) == (1, 2)
    assert kept[0].keys() == again[0].keys()
    for name, gradient in kept[0].items():
        assert torch.equal(gradient, again[0][name]), name
