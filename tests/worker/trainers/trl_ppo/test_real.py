"""TRL's own PPO trainer, really: in its environment, on CPU ranks, on every engine that it has."""

from pathlib import Path
from typing import Any

import pytest

from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.adapters import critic_parameters
from suite.theory.parameters import parameter_count
from tests.needs import require_environment
from tests.worker.trainers.runs import WORK, Run, tiny_shape, trainer_manifest, whole_run_of

pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(560)]
GPT2, LLAMA = tiny_shape("gpt2"), tiny_shape("llama", tied_embeddings=False)
#: no clipping, which DDP does not do, so that every engine takes the same steps
UNCLIPPED: dict[str, Any] = {**WORK, "optimizer": {"gradient_clip": 1e6}}
PARTS = {*("train/forward", "train/backward", "train/optimizer"), *("other/statistics", "other/collect-garbage")}
LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {"engine": "ddp"},
    "zero2": {"zero_stage": 2},
    "zero3": {"zero_stage": 3, "gather_for_generation": True},
}


def run(
    folder: Path, layout: dict[str, Any], size: Shape = GPT2, ranks: int = 2, precision: Any = "fp32", **work: Any
) -> Run:
    """A whole run; ``work`` changes the workload."""
    python = require_environment("trl-ppo")
    laid = Layout(devices_per_node=ranks, data=ranks, **layout)
    measure = Measure(device="cpu", precision=precision, warmup=1, iterations=1)
    manifest = trainer_manifest("trl-ppo", size, {**UNCLIPPED, **work}, laid, measure, python)
    return whole_run_of(manifest, folder, python)


def test_every_engine_does_the_same_training_and_tells_every_phase(tmp_path: Path) -> None:
    runs = {name: run(tmp_path, layout) for name, layout in LAYOUTS.items()}
    two = parameter_count(GPT2).total * 2 + GPT2.hidden  # policy, and a value model with a layer for a head
    wanted = runs["zero2"].stats
    assert wanted[0]["kl"] == pytest.approx(0, abs=1e-6), "policy and reference start from equal weights"
    for each in runs.values():
        record = each.record
        assert record.counts.total_parameters == record.counts.trainable_parameters == two
        assert {"generate", "score", "reference", "reward", "train", "other"} <= set(dict(record.phases))
        assert set(record.details) == PARTS
        assert [stats["reward"] for stats in each.stats] == [0.5, 0.5]
        for found, expected in zip(each.stats, wanted, strict=True):
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-3)
            assert found["value_loss"] == pytest.approx(expected["value_loss"], rel=1e-3)
    assert runs["ddp"].stats[0]["gradient_norm"] is None
    assert runs["zero3"].stats[1]["gradient_norm"] == pytest.approx(wanted[1]["gradient_norm"], rel=1e-3)
    assert any("second model of the policy's shape" in text for text in runs["ddp"].facts["work_differences"])
    on_gloo = ["accelerate-gloo", "no-shared-memory-operator"]
    assert [each.shims for each in runs.values()] == [[], on_gloo, on_gloo]


def test_a_critic_of_its_own_shape_is_the_value_model_and_scores_are_the_seeds(tmp_path: Path) -> None:
    critic = {"layers": 1, "hidden": 16, "ffn": 32, "heads": 2}
    work = {"critic": critic, "reward": {"kind": "pseudo"}, "optimizer_steps": 1}
    found = run(tmp_path, LAYOUTS["ddp"], LLAMA, ranks=1, precision="bf16", **work)
    own, counts = Workload(**{**UNCLIPPED, **work}).critic, found.record.counts
    assert counts.total_parameters == parameter_count(LLAMA).total + critic_parameters(LLAMA, own)
    assert not any("second model" in text for text in found.facts["work_differences"])
    assert 0 < found.stats[0]["reward"] < 1
    assert found.stats[0]["reward"] != found.stats[1]["reward"]
