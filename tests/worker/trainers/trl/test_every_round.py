"""TRL's GRPO once, really, in every round of tests; test_real.py has the rest of it (`make test-trainers`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.needs import require_trl
from tests.worker.trainers.runs import whole_run_of
from tests.worker.trainers.trl.test_real import PARTS, PHASES, trl_manifest


@pytest.mark.ranks
@pytest.mark.packages
@pytest.mark.timeout(400)
def test_a_rank_of_it_is_measured_and_verified(tmp_path: Path) -> None:
    require_trl()
    run = whole_run_of(trl_manifest("trl-grpo", ranks=1, layout={"zero_stage": 2}), tmp_path, sys.executable)
    assert [event["phase"] for event in run.events("phase")] == PHASES * 2
    assert all(set(event["details"]) == PARTS for event in run.events("iteration"))
    assert run.record.throughput is not None and run.record.throughput.samples_per_second.value > 0
