"""TRL's GRPO once, really, in every round of tests; test_real.py has the rest of it (`make test-trainers`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from tests.needs import require_trl
from tests.worker.trainers.trl.test_real import PARTS, PHASES, manifest_of


@pytest.mark.ranks
@pytest.mark.timeout(200)
def test_a_rank_of_it_is_measured_and_verified(tmp_path: Path) -> None:
    require_trl()
    manifest = manifest_of("trl-grpo", ranks=1, layout={"zero_stage": 2})
    record = execute(manifest, tmp_path, LocalLauncher(), sys.executable, lambda event: None)
    bundle = Bundle(tmp_path / manifest.run.id)
    assert record.status == "ok", f"{record.failure}\n{(bundle.path / 'logs' / 'rank-0.log').read_text()[-2000:]}"
    assert verify(bundle).status == "equal"
    events = bundle.events().ranks[0]
    assert [event["phase"] for event in events if event["kind"] == "phase"] == PHASES * 2
    assert all(set(event["details"]) == PARTS for event in events if event["kind"] == "iteration")
    assert record.throughput is not None and record.throughput.samples_per_second.value > 0
