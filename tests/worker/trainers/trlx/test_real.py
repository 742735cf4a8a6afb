"""trlx's own trainer, really: two ranks on a CPU, every layout and family, with the measured source.

Needs the environment of `make trlx`, or another interpreter with its packages in SUITE_TRLX_PYTHON, and trlx installed
there or a checkout of it in SUITE_TRLX_SOURCE.
"""

from __future__ import annotations

import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from suite.backends.base import choice
from suite.backends.interpreters import environment_python
from suite.backends.registry import find_backend
from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.launch.probe import stack_versions
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.spec.manifest import Limits, Measure
from suite.spec.resolve import make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.parameters import parameter_count
from suite.worker.loop import expected_counts

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(400)]
PYTHON = os.environ.get("SUITE_TRLX_PYTHON") or environment_python("trlx") or sys.executable
SHAPE: dict[str, Any] = {
    "layers": 3,
    "hidden": 32,
    "ffn": 64,
    "heads": 4,
    "kv_heads": 4,
    "vocab": 131,
    "positions": 16,
}
SHAPES = {
    "gpt2": Shape(name="tiny-gpt2", architecture="gpt2", **SHAPE),
    "opt": Shape(name="tiny-opt", architecture="opt", **SHAPE),
    "llama": Shape(name="tiny-llama", architecture="llama", **{**SHAPE, "kv_heads": 2, "tied_embeddings": False}),
}
#: two micro batches a step, two steps an epoch, two epochs: every way in which a step can be missed or doubled
WORK: dict[str, Any] = {
    "name": "tiny",
    "prompt_tokens": 5,
    "new_tokens": 6,
    "rollouts": 8,
    "micro_batch": 2,
    "optimizer_steps": 2,
    "ppo_epochs": 2,
}
HYDRA = {"trainable_layers": 2, "reference": "hydra"}
PARTS = {"other/decode", "other/tokenise", "train/forward", "train/backward", "train/optimizer"}


@lru_cache(maxsize=1)
def why_not() -> str | None:
    """Why trlx cannot be run here."""
    driver = find_backend("trlx-deepspeed")
    try:
        missing = [name for name, version in stack_versions(PYTHON, driver.packages).items() if version is None]
        problems = [f"{PYTHON} lacks {', '.join(missing)}"] if missing else driver.stack_errors(PYTHON)
    except UsageError as error:
        problems = [str(error)]
    return "; ".join(problems) or None


@pytest.fixture(autouse=True)
def _trlx() -> None:
    problem = why_not()
    if problem is not None:
        pytest.skip(f"trlx cannot be run: {problem}")


def ended(
    folder: Path, backend: str = "trlx-deepspeed", family: str = "gpt2", stage: int = 0, ranks: int = 2, **more: Any
) -> tuple[Record, Bundle]:
    """A run, however it ended; ``more`` changes the workload."""
    precision = more.pop("precision", "fp32")
    layout = {name: more.pop(name) for name in ("offload_optimizer", "recompute") if name in more}
    driver = find_backend(backend)
    manifest = make_manifest(
        plan="tests",
        repeat=1,
        backend=choice(driver),
        size=SHAPES[family],
        workload=Workload(**{**WORK, **more}),
        layout=Layout(devices_per_node=ranks, data=ranks, zero_stage=stage, **layout),
        measure=Measure(device="cpu", precision=precision, warmup=1, iterations=2),
        limits=Limits(run_seconds=360, silence_seconds=180),
        stack={name: str(version) for name, version in stack_versions(PYTHON, driver.packages).items()},
    )
    record = execute(manifest, folder, LocalLauncher(), PYTHON, lambda event: None)
    return record, Bundle(folder / manifest.run.id)


def run(folder: Path, *arguments: Any, **more: Any) -> tuple[Record, Bundle]:
    """A run that ended well, did the manifest's work and derives to its record."""
    record, bundle = ended(folder, *arguments, **more)
    log = (bundle.path / "logs" / "rank-0.log").read_text()[-2000:]
    assert record.status == "ok", f"{record.failure}\n{log}"
    assert verify(bundle).status == "equal"
    body = json.loads(bundle.manifest().model_dump_json(by_alias=True))
    assert record.counts is not None
    assert expected_counts(body["workload"], body["work"]).items() <= record.counts.model_dump().items()
    return record, bundle


def stats_of(bundle: Bundle) -> list[dict[str, Any]]:
    return [event["stats"] for event in bundle.events().ranks[0] if event["kind"] == "iteration"]


def facts(record: Record) -> dict[str, Any]:
    assert record.environment.worker is not None
    return record.environment.worker


@pytest.mark.parametrize("family", SHAPES)
def test_every_layout_does_the_same_training_and_tells_every_phase(family: str, tmp_path: Path) -> None:
    found = {}
    for name, backend, stage in (
        ("ddp", "trlx-ddp", 0),
        *((f"zero{stage}", "trlx-deepspeed", stage) for stage in range(4)),
    ):
        record, bundle = run(tmp_path, backend, family, stage)
        found[name] = stats_of(bundle)
        _check_times(record)
        assert facts(record)["packages"]["trlx"] == "0.7.0 (3340c2f3)"
        hidden = SHAPES[family].hidden
        value_head = 2 * hidden**2 + 4 * hidden + 1
        assert record.counts.total_parameters == parameter_count(SHAPES[family]).total + value_head
        assert record.counts.trainable_parameters == record.counts.total_parameters
    first = found["zero2"][0]
    assert first["kl"] == pytest.approx(0, abs=1e-6), "policy and reference start from equal weights"
    assert first["reward"] == 0.5
    for stats in found.values():
        # DDP does not clip, so after its first optimizer step it is another training
        assert stats[0]["loss"] == pytest.approx(first["loss"], rel=0.02)
    for stage in (0, 1, 3):
        for index in range(3):
            for key in ("loss", "value_loss"):
                assert found[f"zero{stage}"][index][key] == pytest.approx(found["zero2"][index][key], rel=1e-3)
    assert all(stats["gradient_norm"] > 0 for stats in found["zero2"])


def _check_times(record: Record) -> None:
    assert record.phases is not None and record.details is not None
    phases = dict(record.phases)
    assert all(phases[phase].seconds > 0 for phase in ("generate", "score", "reference", "train", "other"))
    assert sum(phase.share for phase in phases.values()) == pytest.approx(1, abs=0.02)
    assert set(record.details) == PARTS
    trained = sum(seconds for name, seconds in record.details.items() if name.startswith("train/"))
    # each part is of the rank that took longest over it
    assert 0.3 * phases["train"].seconds < trained < 1.5 * phases["train"].seconds


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("family", SHAPES)
def test_the_hydra_reference_is_trlxs_own_branch(family: str, stage: int, tmp_path: Path) -> None:
    record, bundle = run(tmp_path, family=family, stage=stage, **HYDRA)
    assert stats_of(bundle)[0]["kl"] == pytest.approx(0, abs=1e-6), "the branch is a copy of the policy's layers"
    assert record.counts.trainable_parameters < record.counts.total_parameters
    assert any("runs the whole policy once more" in text for text in facts(record)["work_differences"])


def test_ddp_with_a_hydra_workload_says_that_it_took_a_full_reference(tmp_path: Path) -> None:
    record, bundle = run(tmp_path, "trlx-ddp", **HYDRA)
    assert stats_of(bundle)[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert any("full copy, not hydra" in text for text in facts(record)["work_differences"])


def test_one_rank_alone_runs_on_the_engine_too(tmp_path: Path) -> None:
    record, _ = run(tmp_path, stage=1, ranks=1)
    assert any("DeepSpeed on a CPU" in note for note in facts(record)["notes"])


def test_only_the_shims_that_were_needed_are_listed(tmp_path: Path) -> None:
    records = [
        run(tmp_path, "trlx-ddp")[0],
        run(tmp_path, stage=1)[0],
        run(tmp_path, stage=1, micro_batch=4)[0],
    ]
    found = [
        sorted(note.split()[1].rstrip(":") for note in facts(record)["notes"] if note.startswith("shim "))
        for record in records
    ]
    assert found[0] == ["ddp-peft-type"]
    assert found[1] == ["accelerate-gloo", "accumulation-boundary", "no-shared-memory-operator"]
    assert found[2] == ["accelerate-gloo", "no-shared-memory-operator"]


@pytest.mark.parametrize("stage", [2, 3])
def test_bf16_and_an_offloaded_optimizer_run(stage: int, tmp_path: Path) -> None:
    run(tmp_path, stage=stage, precision="bf16")
    run(tmp_path, stage=stage, offload_optimizer=True)


def test_another_reward_is_read_from_the_text(tmp_path: Path) -> None:
    _, bundle = run(tmp_path, stage=1, reward={"kind": "token-below", "threshold": 128})
    assert [stats["reward"] for stats in stats_of(bundle)] == [1.0] * 3


@pytest.mark.parametrize(("stage", "work"), [(1, {}), (3, HYDRA)], ids=["all train", "above a frozen trunk"])
def test_the_engine_beside_trlx_recomputes_to_the_same_training(
    stage: int, work: dict[str, Any], tmp_path: Path
) -> None:
    kept, again = (
        stats_of(run(tmp_path, "deepspeed", "gpt2", stage, **work, recompute=recompute)[1])
        for recompute in ("none", "full")
    )
    for before, after in zip(kept, again, strict=True):
        assert after["loss"] == pytest.approx(before["loss"], rel=1e-4)
        assert after["gradient_norm"] == pytest.approx(before["gradient_norm"], rel=1e-3)
        assert after["gradient_norm"] > 0


def test_a_deepspeed_that_accelerate_dropped_without_a_word_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    record, _ = ended(tmp_path, stage=2)
    assert record.status == "failed"
    assert record.failure.kind == "config"
    assert "trlx-deepspeed was asked for, but Accelerate runs MULTI_CPU" in record.failure.evidence[0]
