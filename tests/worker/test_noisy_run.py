"""A real rank beside a busy loop: what its kernel counted comes into its record, whatever this machine's kernel counts.

Which counters disturb a run is proved with scripted ones (tests/bundle/test_validity.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from tests.synthetic import as_lines, driver_events
from tests.worker.tiny import run_tiny, tiny_manifest


@pytest.mark.ranks
@pytest.mark.timeout(400)
def test_the_record_of_a_rank_that_shares_its_only_cpu_has_its_noise_measured(tmp_path: Path) -> None:
    manifest = tiny_manifest(measure={"warmup": 1, "iterations": 4})
    here, began = os.sched_getaffinity(0), time.time()
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(loop.pid, {min(here)})
        os.sched_setaffinity(0, {min(here)})  # what is started now inherits it
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
    assert noise is not None and noise.cpu_share is not None and noise.involuntary_switches is not None
    assert 0 < noise.cpu_share.worst <= 1.05
    assert noise.involuntary_switches.worst >= 0
    assert validity is not None and (validity.status == "suspect") == bool(validity.reasons)
