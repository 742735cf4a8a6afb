"""DeepSpeed-Chat's third step as work: LoRA adapters and a critic of its own, on real ranks and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suite.theory.adapters import work_parameters
from suite.worker.loop import expected_counts
from tests.worker.tiny import run_tiny, tiny_manifest

CRITIC = {"layers": 1, "hidden": 16, "ffn": 32, "heads": 2}


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("ranks", "stage", "workload"),
    [
        pytest.param(1, 2, {"lora_rank": 3, "critic": CRITIC}, marks=pytest.mark.thorough),
        (2, 3, {"lora_rank": 3, "critic": CRITIC, "optimizer_steps": 2}),
        (1, 0, {"critic": CRITIC}),
    ],
    ids=["adapters and critic", "both under ZeRO-3 on two ranks", "critic alone"],
)
def test_ranks_do_the_manifests_work_and_train_the_parameters_that_the_theory_counts(
    tmp_path: Path, ranks: int, stage: int, workload: dict[str, Any]
) -> None:
    learning = {"learning_rate": 1e-2}
    layout = {"zero_stage": stage, "recompute": "full"}
    manifest = tiny_manifest(ranks, layout=layout, workload={**workload, "optimizer": learning})
    run = run_tiny(tmp_path, manifest)
    assert run.exit_codes == [0] * ranks, run.errors
    body = json.loads(manifest.model_dump_json(by_alias=True))
    held = work_parameters(manifest.size, manifest.workload)
    counts = {
        **expected_counts(body["workload"], body["work"]),
        "total_parameters": held.total,
        "trainable_parameters": held.trainable,
    }
    iterations = run.events(kind="iteration")
    assert [event["counts"] for event in iterations] == [counts] * 3
    # fresh adapters add nothing, so the policy starts as its reference; then it moves away, and the critic learns
    assert iterations[0]["stats"]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert abs(iterations[-1]["stats"]["kl"]) > 1e-5
    assert iterations[-1]["stats"]["value_loss"] != iterations[0]["stats"]["value_loss"]
    for event in iterations:
        stats = event["stats"]
        assert stats["loss"] == pytest.approx(stats["policy_loss"] + stats["value_loss"], abs=1e-6)
    notes = run.events(kind="environment")[0]["facts"]["notes"]
    assert any("no hybrid engine" in note for note in notes)


def test_an_adapter_is_three_products_side_by_side_beside_the_joint_matrix() -> None:
    import torch
    from transformers.pytorch_utils import Conv1D

    from suite.worker.engines.deepspeed.lora import LowRank

    torch.manual_seed(0)
    joint = LowRank(Conv1D(3 * 4, 4), rank=2, groups=3)
    with torch.no_grad():
        joint.down.normal_()
        joint.up.normal_()
    states = torch.randn(2, 5, 4)
    downs = joint.down.split(2, dim=1)
    by_hand = torch.cat([states @ down @ joint.up[index] for index, down in enumerate(downs)], dim=-1) / 2
    assert torch.allclose(joint(states), joint.base(states) + by_hand, atol=1e-6)
    assert not joint.base.weight.requires_grad and joint.base.bias.requires_grad
