"""The stand-in for a worker leaves what the contract says, and goes wrong as told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from suite.bundle.derive import derive
from suite.bundle.store import Bundle, DamagedBundle
from suite.spec.layout import Layout
from tests.synthetic import synthetic_manifest

WORKER = Path(__file__).with_name("scripted_worker.py")


def run(root: Path, script: dict, ranks: int = 1) -> tuple[Bundle, list[subprocess.CompletedProcess]]:
    """Run the ranks one after the other, with the driver's events around them."""
    manifest = synthetic_manifest(layout=Layout(devices_per_node=ranks, data=ranks), warmup=1, iterations=5)
    bundle = Bundle.create(root, manifest)
    done = []
    with bundle.driver_events() as log:
        log.write("launch", schema="suite/events/1", launcher="local", ranks=ranks, pid=1)
        for rank in range(ranks):
            env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            argv = [sys.executable, str(WORKER), str(bundle.path / "manifest.json"), "--bundle", str(bundle.path)]
            env["SUITE_SCRIPT"] = json.dumps(script)
            done.append(subprocess.run(argv, env=env, capture_output=True, text=True))
        codes = [process.returncode for process in done]
        log.write("end", status="failed" if any(codes) else "ok", exit_codes=codes, elapsed_seconds=1.0)
    return bundle, done


def test_a_script_without_trouble_makes_an_ok_run(tmp_path):
    bundle, done = run(tmp_path, {"seconds": 0.5, "skew": [0, 0.5]}, ranks=2)
    record = derive(bundle)
    assert record.status == "ok"
    assert record.iterations.seconds == (0.75,) * 6
    assert done[0].stdout.count("::suite:: ") == len(bundle.events().ranks[0])
    assert done[1].stdout == ""


def test_the_same_seed_gives_the_same_noise(tmp_path):
    first, again, other = (
        derive(run(tmp_path / str(number), {"noise": 0.1, "seed": seed})[0]).iterations
        for number, seed in enumerate((3, 3, 4))
    )
    assert first == again != other


def test_heartbeats_come_while_time_passes_and_change_nothing_else(tmp_path):
    bundle, _ = run(tmp_path / "a", {"seconds": 0.1, "sleep": True, "beat": 0.02})
    without, _ = run(tmp_path / "b", {"seconds": 0.1})
    events = bundle.events().ranks[0]
    assert {"generate", "train"} <= {event["phase"] for event in events if event["kind"] == "heartbeat"}
    times = [event["time"] for event in events if event["kind"] == "iteration"]
    assert times[-1] - times[0] >= 0.5, "it really passes"
    kept = {"status", "counts", "iterations", "phases"}
    assert derive(bundle).model_dump(include=kept) == derive(without).model_dump(include=kept)


@pytest.mark.parametrize(
    ("trouble", "code", "kind"),
    [
        ({"do": "oom"}, 1, "oom_device"),
        ({"do": "raise"}, 1, "unknown"),
        ({"do": "exit"}, 1, "unknown"),
        ({"do": "signal"}, -signal.SIGKILL, "unknown"),
        ({"do": "signal", "signal": int(signal.SIGTERM)}, -signal.SIGTERM, "unknown"),
    ],
)
def test_a_rank_goes_wrong_in_its_iteration(tmp_path, trouble, code, kind):
    bundle, done = run(tmp_path, {"at": {"iteration": 3, **trouble}})
    record = derive(bundle)
    assert done[0].returncode == code
    assert (record.status, record.failure.kind) == ("failed", kind)
    assert len(record.iterations.seconds) == 3


def test_what_it_prints_and_writes_may_be_broken(tmp_path):
    with pytest.raises(DamagedBundle, match="is not JSON"):
        derive(run(tmp_path / "a", {"at": {"iteration": 2, "do": "garbage"}})[0])
    torn, _ = run(tmp_path / "b", {"at": {"iteration": 2, "do": "torn"}})
    assert "was cut short" in derive(torn).notes[0]
    flooded, done = run(tmp_path / "c", {"at": {"iteration": 2, "do": "flood"}})
    assert len(done[0].stdout) > 10 * 1024 * 1024 and derive(flooded).status == "ok"
    miscounted, _ = run(tmp_path / "d", {"at": {"iteration": 4, "rank": 1, "do": "counts"}}, ranks=2)
    assert "samples is 9 on rank 1 in iteration 4" in derive(miscounted).failure.evidence[0]
