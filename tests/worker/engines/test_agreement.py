"""From equal weights both engines take the same optimizer steps: the same losses, gradients, clipping and updates.

Run as a script this file is the one rank that holds both:
``python -m tests.worker.engines.test_agreement STAGE SHARDED``.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worker.engines.batches import even_batch, loss_of
from tests.worker.tiny import run_program, tiny_manifest

STEPS, PROMPT_TOKENS, NEW_TOKENS, ROWS = 4, 8, 8, 4


def manifest_of(layout: dict[str, Any]) -> dict[str, Any]:
    """Two micro batches a step, a learning rate that shows, and the shape of megatron/test_layouts.py."""
    from tests.worker.engines.megatron.test_layouts import FFN, HIDDEN, LAYERS

    return tiny_manifest(
        stack={},
        shape={"layers": LAYERS, "hidden": HIDDEN, "ffn": FFN, "vocab": 256},
        layout=layout,
        workload={"optimizer": {"learning_rate": 1e-3}},
    ).model_dump(mode="json", by_alias=True)


def rank_program(zero_stage: int, distributed_optimizer: bool) -> None:
    """Both engines in one process, DeepSpeed first: Megatron's CPU patches are process-wide."""
    import torch

    from suite.worker.engines import engine_class
    from suite.worker.rank import RankIdentity
    from suite.worker.samples import Samples
    from suite.worker.world import join
    from tests.worker.engines.megatron.test_layouts import copy_weights

    torch.set_num_threads(1)
    world = join(RankIdentity(0, 1, 0, 1), "cpu", 60.0)
    manifest = manifest_of({"zero_stage": zero_stage})
    deepspeed = engine_class("deepspeed", "cpu")(manifest, world)
    megatron = engine_class("megatron", "cpu")(manifest_of({"distributed_optimizer": distributed_optimizer}), world)
    source = dict(deepspeed._policy.named_parameters())
    with torch.no_grad():
        copy_weights(deepspeed._policy, megatron._model)
        for name, parameter in megatron._model.named_parameters():
            if name.startswith("value_head"):
                parameter.copy_(source[name])
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(256, (ROWS, PROMPT_TOKENS + NEW_TOKENS), generator=generator)
    samples = Samples.even(tokens, PROMPT_TOKENS)
    noise = partial(torch.randn, ROWS, NEW_TOKENS, generator=generator)
    logprobs, values = deepspeed.score(samples)
    # Off policy, so that both clips bite.
    off_policy = {"logprobs": logprobs + 0.2 * noise(), "values": values + 0.2 * noise()}
    batch = even_batch(manifest, **off_policy, advantages=noise(), returns=noise())
    loss = loss_of(manifest)
    told = []
    for engine in (deepspeed, megatron):
        steps = []
        for _ in range(STEPS):
            logprobs, values = engine.score(samples)
            steps.append({"logprobs": logprobs.flatten().tolist(), "values": values.flatten().tolist()})
            steps[-1].update(engine.train(samples, dict(batch), loss))
        told.append(steps)
    print(json.dumps(told))


@pytest.mark.ranks
@pytest.mark.timeout(150)
@pytest.mark.parametrize(("zero_stage", "distributed_optimizer"), [(0, False), (2, True)])
def test_from_equal_weights_both_engines_take_the_same_steps(
    zero_stage: int, distributed_optimizer: bool, tmp_path: Path
) -> None:
    program = ["tests.worker.engines.test_agreement", str(zero_stage), str(int(distributed_optimizer))]
    (output,) = run_program(program, 1, tmp_path)
    deepspeed, megatron = json.loads(output.splitlines()[-1])
    for ours, theirs in zip(deepspeed, megatron, strict=True):
        for name in ours.keys() & theirs.keys():
            assert theirs[name] == pytest.approx(ours[name], rel=1e-4, abs=1e-5), name
    assert deepspeed[-1]["loss"] < deepspeed[0]["loss"] - 0.05
    assert deepspeed[0]["logprobs"] != pytest.approx(deepspeed[-1]["logprobs"], rel=1e-2)
    assert zero_stage == 0 or deepspeed[0]["gradient_norm"] > 1.0  # clipped, so that clipping is compared too


if __name__ == "__main__":
    rank_program(int(sys.argv[1]), sys.argv[2] == "1")
