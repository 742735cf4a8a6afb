"""A real rank with a planted neighbour: its record says that, and of what kind, the disturbance was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.bundle.validity import CPU_SHARE
from tests.synthetic import as_lines, driver_events
from tests.worker.tiny import run_tiny, tiny_manifest


@pytest.mark.ranks
def test_a_rank_that_shares_its_only_cpu_with_a_busy_loop_is_suspect(tmp_path: Path) -> None:
    manifest = tiny_manifest(measure={"warmup": 1, "iterations": 8})
    here, began = os.sched_getaffinity(0), time.time()
    cpu = min(here)
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(loop.pid, {cpu})
        os.sched_setaffinity(0, {cpu})  # what is started now inherits it
        done = run_tiny(tmp_path, manifest)
    finally:
        os.sched_setaffinity(0, here)
        loop.kill()
        loop.wait()
    assert done.exit_codes == [0], done.errors
    launch, end = driver_events(manifest, "ok")
    driver = [{**launch, "time": began}, {**end, "time": time.time(), "elapsed_seconds": time.time() - began}]
    (tmp_path / "events" / "driver.jsonl").write_text(as_lines(driver))
    (tmp_path / "environment.json").write_text("{}")
    record = derive(Bundle(tmp_path))
    noise, validity = record.noise, record.validity
    assert noise is not None and validity is not None
    assert validity.status == "suspect"
    assert any("waited for a CPU" in reason for reason in validity.reasons), validity
    assert any(reason.startswith("others used") for reason in validity.reasons), validity
    assert noise.cpu_share is not None and noise.cpu_share.worst < CPU_SHARE
    assert noise.involuntary_switches is not None and noise.involuntary_switches.worst > 10
