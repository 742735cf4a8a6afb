"""OpenRLHF, really: its asynchronous PPO with a critic, on vLLM and DeepSpeed ZeRO-3, one CPU rank beside another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suite.backends.base import choice
from suite.backends.registry import find_backend
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.launch.probe import stack_versions
from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Limits, Measure
from suite.spec.resolve import make_manifest
from suite.spec.workload import Workload
from suite.worker.loop import expected_counts
from suite.worker.trainers.processes import below
from tests.needs import require_environment, require_vllm
from tests.worker.trainers.openrlhf.test_options import SHAPE

pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(550)]
CRITIC = {"layers": 1, "hidden": 32, "ffn": 64, "heads": 2}
WORK: dict[str, Any] = {
    "name": "tiny",
    "prompt_lengths": "lognormal:mean=4,sigma=0.4,cap=6",
    "lengths": "lognormal:mean=5,sigma=0.4,cap=8",
    "prompt_tokens": 6,
    "new_tokens": 8,
    "rollouts": 4,
    "micro_batch": 2,
    "optimizer_steps": 2,
    "critic": CRITIC,
    "reward": {"kind": "pseudo"},
}


def test_asynchronous_ppo_does_the_manifests_work_and_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_vllm()
    python = require_environment("openrlhf")
    driver, workload = find_backend("openrlhf"), Workload(**WORK)
    asked = LayoutRequest(devices_per_node=2, zero_stage=3, placement="split", generation_ranks=1, staleness=1)
    manifest = make_manifest(
        plan="p",
        repeat=1,
        backend=choice(driver),
        size=SHAPE,
        workload=workload,
        layout=driver.layout(SHAPE, workload, asked),
        measure=Measure(device="cpu", precision="bf16", iterations=2, warmup=1),
        limits=Limits(run_seconds=500, silence_seconds=450),
        stack={name: str(version) for name, version in stack_versions(python, driver.packages).items()},
    )
    mark = f"SUITE_TEST_RUN={tmp_path}"
    monkeypatch.setenv(*mark.split("=", 1))  # whatever the run starts inherits it
    record = execute(manifest, tmp_path, LocalLauncher(), python, lambda event: None)
    bundle = Bundle(tmp_path / manifest.run.id)
    log = (bundle.path / "logs" / "rank-0.log").read_text()[-3000:]
    assert record.status == "ok", f"{record.failure}\n{log}"
    assert verify(bundle).status == "equal"
    body = json.loads(bundle.manifest().model_dump_json(by_alias=True))
    assert record.counts is not None
    assert expected_counts(body["workload"], body["work"]).items() <= record.counts.model_dump().items()
    assert record.overlap is not None
    roles, ages = record.overlap.roles, record.overlap.staleness
    assert roles is not None and ages is not None
    assert set(roles) == {"generation", "training"}
    assert all(role.busy_seconds > 0 for role in roles.values())
    assert sum(ages.values()) == pytest.approx(1.0)
    assert max(map(int, ages)) <= 1
    phases = {event["phase"] for event in bundle.events().ranks[1] if event["kind"] == "phase"}
    assert phases == {"generate", "score", "reference", "reward", "train", "sync"}
    assert record.environment.worker is not None
    assert any(note.startswith("CPU patch plain-linear") for note in record.environment.worker["notes"])
    assert [pid for pid in below(1) if mark.encode() in _environment(pid)] == []


def _environment(pid: int) -> bytes:
    """Of a process as it was started; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
