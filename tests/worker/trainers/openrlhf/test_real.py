"""OpenRLHF, really: its asynchronous PPO with a critic, on vLLM and DeepSpeed ZeRO-3, one CPU rank beside another."""

from pathlib import Path
from typing import Any

import pytest

from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Measure
from suite.worker.trainers.processes import below
from tests.needs import require_environment, require_vllm
from tests.worker.trainers.openrlhf.test_hooks import SHAPE
from tests.worker.trainers.runs import trainer_manifest, whole_run_of

pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.packages, pytest.mark.timeout(560)]
WORK: dict[str, Any] = {
    "name": "tiny",
    "prompt_lengths": "lognormal:mean=4,sigma=0.4,cap=6",
    "lengths": "lognormal:mean=5,sigma=0.4,cap=8",
    "prompt_tokens": 6,
    "new_tokens": 8,
    "rollouts": 4,
    "micro_batch": 2,
    "optimizer_steps": 2,
    "critic": {"layers": 1, "hidden": 32, "ffn": 64, "heads": 2},
    "reward": {"kind": "pseudo"},
}


def test_asynchronous_ppo_does_the_manifests_work_and_leaves_no_process_behind(tmp_path, monkeypatch):
    require_vllm()
    python = require_environment("openrlhf")
    asked = LayoutRequest(devices_per_node=2, zero_stage=3, placement="split", generation_ranks=1, staleness=1)
    measure = Measure(device="cpu", precision="bf16", iterations=2, warmup=1)
    manifest = trainer_manifest("openrlhf", SHAPE, WORK, asked, measure, python)
    mark = f"SUITE_TEST_RUN={tmp_path}"
    monkeypatch.setenv(*mark.split("=", 1))  # whatever the run starts inherits it
    run = whole_run_of(manifest, tmp_path, python)
    roles, ages = run.record.overlap.roles, run.record.overlap.staleness
    assert set(roles) == {"generation", "training"}
    assert all(role.busy_seconds > 0 for role in roles.values())
    assert sum(ages.values()) == pytest.approx(1.0)
    assert max(map(int, ages)) <= 1
    phases = {event["phase"] for event in run.events("phase", rank=1)}
    assert phases == {"generate", "score", "reference", "reward", "train", "sync"}
    assert any(note.startswith("CPU patch plain-linear") for note in run.facts["notes"])
    assert [pid for pid in below(1) if mark.encode() in _environment(pid)] == []


def _environment(pid: int) -> bytes:
    """Of a process as it was started; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
