"""TRL's own PPO trainer, really: in its environment, on CPU ranks, on every engine that it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suite.backends.base import choice
from suite.backends.registry import find_backend
from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.launch.probe import stack_versions
from suite.spec.layout import Layout
from suite.spec.manifest import Limits, Measure
from suite.spec.resolve import make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.adapters import critic_parameters
from suite.theory.parameters import parameter_count
from suite.worker.loop import expected_counts
from tests.needs import require_environment

pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(300)]
SHAPE: dict[str, Any] = {"layers": 2, "hidden": 32, "ffn": 64, "heads": 4, "vocab": 131, "positions": 16}
GPT2 = Shape(name="tiny-gpt2", architecture="gpt2", kv_heads=4, **SHAPE)
LLAMA = Shape(name="tiny-llama", architecture="llama", kv_heads=2, tied_embeddings=False, **SHAPE)
#: two micro batches a step, two steps an epoch, two epochs: every way in which a step can be missed or doubled; and no
#: clipping, which DDP does not do, so that every engine takes the same steps
WORK: dict[str, Any] = {
    "name": "tiny",
    "prompt_tokens": 5,
    "new_tokens": 6,
    "rollouts": 8,
    "micro_batch": 2,
    "optimizer_steps": 2,
    "ppo_epochs": 2,
    "optimizer": {"gradient_clip": 1e6},
}
PARTS = {
    *("train/forward", "train/backward", "train/optimizer"),
    *("other/statistics", "other/collect-garbage"),
}


def run(
    folder: Path, size: Shape = GPT2, ranks: int = 2, precision: Any = "fp32", **more: Any
) -> tuple[Record, list[dict[str, Any]]]:
    """A run that ended well, did the manifest's work and derives to its record; with its statistics.

    ``more`` are fields of the layout and changes of the work.
    """
    python = require_environment("trl-ppo")
    layout = {name: more.pop(name) for name in ("engine", "zero_stage", "gather_for_generation") if name in more}
    driver = find_backend("trl-ppo")
    manifest = make_manifest(
        plan="tests",
        repeat=1,
        backend=choice(driver),
        size=size,
        workload=Workload(**{**WORK, **more}),
        layout=Layout(devices_per_node=ranks, data=ranks, **layout),
        measure=Measure(device="cpu", precision=precision, warmup=1, iterations=1),
        limits=Limits(run_seconds=240, silence_seconds=120),
        stack={name: str(version) for name, version in stack_versions(python, driver.packages).items()},
    )
    record = execute(manifest, folder, LocalLauncher(), python, lambda event: None)
    bundle = Bundle(folder / manifest.run.id)
    log = (bundle.path / "logs" / "rank-0.log").read_text()[-2000:]
    assert record.status == "ok", f"{record.failure}\n{log}"
    assert verify(bundle).status == "equal"
    body = json.loads(bundle.manifest().model_dump_json(by_alias=True))
    assert record.counts is not None
    assert expected_counts(body["workload"], body["work"]).items() <= record.counts.model_dump().items()
    return record, [event["stats"] for event in bundle.events().ranks[0] if event["kind"] == "iteration"]


def facts(record: Record) -> dict[str, Any]:
    assert record.environment.worker is not None
    return record.environment.worker


def test_every_engine_does_the_same_training_and_tells_every_phase(tmp_path: Path) -> None:
    layouts: dict[str, dict[str, Any]] = {
        "ddp": {"engine": "ddp"},
        "zero2": {"zero_stage": 2},
        "zero3": {"zero_stage": 3, "gather_for_generation": True},
    }
    runs = {name: run(tmp_path, **layout) for name, layout in layouts.items()}
    two = parameter_count(GPT2).total * 2 + GPT2.hidden  # policy, and a value model with a layer for a head
    first = runs["zero2"][1][0]
    assert first["kl"] == pytest.approx(0, abs=1e-6), "policy and reference start from equal weights"
    for record, stats in runs.values():
        assert record.phases is not None and record.details is not None and record.counts is not None
        assert record.counts.total_parameters == record.counts.trainable_parameters == two
        phases = dict(record.phases)
        assert all(phases[name].seconds > 0 for name in ("generate", "score", "reference", "reward", "train", "other"))
        assert set(record.details) == PARTS
        assert [each["reward"] for each in stats] == [0.5, 0.5]
        for found, expected in zip(stats, runs["zero2"][1], strict=True):
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-3)
            assert found["value_loss"] == pytest.approx(expected["value_loss"], rel=1e-3)
    assert runs["ddp"][1][0]["gradient_norm"] is None
    assert runs["zero3"][1][1]["gradient_norm"] == pytest.approx(runs["zero2"][1][1]["gradient_norm"], rel=1e-3)
    assert any("second model of the policy's shape" in text for text in facts(runs["ddp"][0])["work_differences"])
    shims = [[note.split()[1] for note in facts(record)["notes"] if note[:5] == "shim "] for record, _ in runs.values()]
    assert shims == [
        [],
        ["accelerate-gloo:", "no-shared-memory-operator:"],
        ["accelerate-gloo:", "no-shared-memory-operator:"],
    ]


def test_a_critic_of_its_own_shape_is_the_value_model_and_scores_are_the_seeds(tmp_path: Path) -> None:
    critic = {"layers": 1, "hidden": 16, "ffn": 32, "heads": 2}
    work = {"critic": critic, "reward": {"kind": "pseudo"}, "optimizer_steps": 1}
    record, stats = run(tmp_path, size=LLAMA, ranks=1, precision="bf16", engine="ddp", **work)
    own = Workload(**{**WORK, **work}).critic
    assert own is not None and record.counts is not None
    assert record.counts.total_parameters == parameter_count(LLAMA).total + critic_parameters(LLAMA, own)
    assert not any("second model" in text for text in facts(record)["work_differences"])
    assert 0 < stats[0]["reward"] < 1
    assert stats[0]["reward"] != stats[1]["reward"]
