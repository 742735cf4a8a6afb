"""trlx's own trainer, really: two ranks on a CPU, every layout and family, with the measured source (`make test-trlx`).

Needs a checkout of trlx in SUITE_TRLX_SOURCE, and the environment of `make trlx` or another interpreter with its
packages in SUITE_TRLX_PYTHON.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.backends.registry import environment_python
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.theory.parameters import parameter_count
from suite.worker.trainers.trlx.source import COMMIT, SOURCE_VARIABLE
from tests.worker.trainers.runs import WORK, Run, run_of, tiny_shape, trainer_manifest, whole_run_of

NO_SOURCE = f"{SOURCE_VARIABLE} names no checkout of trlx at {COMMIT[:8]} (make test-trlx SOURCE=...)"
#: where one is named, a source or an interpreter that does not do fails the tests
needs_source = pytest.mark.skipif(not os.environ.get(SOURCE_VARIABLE), reason=NO_SOURCE)
pytestmark = [pytest.mark.ranks, pytest.mark.trlx, needs_source, pytest.mark.timeout(1800)]
PYTHON = os.environ.get("SUITE_TRLX_PYTHON") or environment_python("trlx") or sys.executable
SHAPES = {
    "gpt2": tiny_shape("gpt2", layers=3),
    "opt": tiny_shape("opt", layers=3),
    "llama": tiny_shape("llama", layers=3, tied_embeddings=False),
}
HYDRA = {"trainable_layers": 2, "reference": "hydra"}
PARTS = {"other/decode", "other/tokenise", "train/forward", "train/backward", "train/optimizer"}


def ended(
    folder: Path,
    backend: str = "trlx-deepspeed",
    family: str = "gpt2",
    stage: int = 0,
    ranks: int = 2,
    whole: bool = True,
    precision: Any = "fp32",
    **more: Any,
) -> Run:
    """A run, ``whole`` unless it should fail; ``more`` changes the layout and the workload."""
    layout = {name: more.pop(name) for name in ("offload_optimizer",) if name in more}
    manifest = trainer_manifest(
        backend,
        SHAPES[family],
        {**WORK, **more},
        Layout(devices_per_node=ranks, data=ranks, zero_stage=stage, **layout),
        Measure(device="cpu", precision=precision, warmup=1, iterations=2),
        PYTHON,
    )
    return (whole_run_of if whole else run_of)(manifest, folder, PYTHON)


@pytest.mark.parametrize("family", SHAPES)
def test_every_layout_does_the_same_training_and_tells_every_phase(family: str, tmp_path: Path) -> None:
    layouts = [("ddp", "trlx-ddp", 0), *((f"zero{stage}", "trlx-deepspeed", stage) for stage in range(4))]
    found = {}
    for name, backend, stage in layouts:
        run = ended(tmp_path, backend, family, stage)
        found[name] = run.stats
        assert {"generate", "score", "reference", "train", "other"} <= set(dict(run.record.phases))
        assert set(run.record.details) == PARTS
        assert run.facts["packages"]["trlx"] == "0.7.0 (3340c2f3)"
        hidden = SHAPES[family].hidden
        value_head = 2 * hidden**2 + 4 * hidden + 1
        assert run.record.counts.total_parameters == parameter_count(SHAPES[family]).total + value_head
        assert run.record.counts.trainable_parameters == run.record.counts.total_parameters
    first = found["zero2"][0]
    assert first["kl"] == pytest.approx(0, abs=1e-6), "policy and reference start from equal weights"
    assert first["reward"] == 0.5
    for stats in found.values():
        # DDP does not clip, so after its first optimizer step it is another training
        assert stats[0]["loss"] == pytest.approx(first["loss"], rel=0.02)
    for stage in (0, 1, 3):
        for one, other in zip(found[f"zero{stage}"], found["zero2"], strict=True):
            assert [one[key] for key in ("loss", "value_loss")] == pytest.approx(
                [other[key] for key in ("loss", "value_loss")], rel=1e-3
            )
    assert all(stats["gradient_norm"] > 0 for stats in found["zero2"])


@pytest.mark.parametrize(
    ("backend", "family", "stage", "told"),
    [
        *(("trlx-deepspeed", family, stage, "the whole policy once more") for family in SHAPES for stage in (2, 3)),
        ("trlx-ddp", "gpt2", 0, "full copy, not hydra"),
    ],
)
def test_the_hydra_reference_is_trlxs_own_branch_and_on_ddp_a_full_copy(backend, family, stage, told, tmp_path):
    run = ended(tmp_path, backend, family, stage, **HYDRA)
    assert run.stats[0]["kl"] == pytest.approx(0, abs=1e-6), "both are copies of the policy"
    counts = run.record.counts
    assert counts.trainable_parameters < counts.total_parameters
    assert any(told in text for text in run.facts["work_differences"])


def test_one_rank_alone_runs_on_the_engine_too(tmp_path: Path) -> None:
    assert any("DeepSpeed on a CPU" in note for note in ended(tmp_path, stage=1, ranks=1).facts["notes"])


def test_only_the_shims_that_were_needed_are_listed(tmp_path: Path) -> None:
    assert ended(tmp_path, "trlx-ddp").shims == ["ddp-peft-type"]
    on_gloo = ["accelerate-gloo", "no-shared-memory-operator"]
    assert ended(tmp_path, stage=1, micro_batch=4).shims == on_gloo
    assert ended(tmp_path, stage=1).shims == sorted([*on_gloo, "accumulation-boundary"])


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("change", [{"precision": "bf16"}, {"offload_optimizer": True}], ids=["bf16", "offloaded"])
def test_bf16_and_an_offloaded_optimizer_run(stage: int, change: dict[str, Any], tmp_path: Path) -> None:
    ended(tmp_path, stage=stage, **change)


def test_a_deepspeed_that_accelerate_dropped_without_a_word_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    failure = ended(tmp_path, stage=2, whole=False).record.failure
    assert failure.kind == "config"
    assert "trlx-deepspeed was asked for, but Accelerate runs MULTI_CPU" in failure.evidence[0]
