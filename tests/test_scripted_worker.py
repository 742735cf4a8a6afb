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


def run(
    root: Path, script: dict, ranks: int = 1, timeout: float = 20
) -> tuple[Bundle, list[subprocess.CompletedProcess]]:
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
            done.append(subprocess.run(argv, env=env, capture_output=True, text=True, timeout=timeout))
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
    first, _ = run(tmp_path / "a", {"noise": 0.1, "seed": 3})
    again, _ = run(tmp_path / "b", {"noise": 0.1, "seed": 3})
    other, _ = run(tmp_path / "c", {"noise": 0.1, "seed": 4})
    assert derive(first).iterations == derive(again).iterations != derive(other).iterations


def test_time_passes_when_it_is_to(tmp_path):
    bundle, _ = run(tmp_path, {"seconds": 0.1, "sleep": True})
    times = [event["time"] for event in bundle.events().ranks[0] if event["kind"] == "iteration"]
    assert times[-1] - times[0] >= 0.5


@pytest.mark.parametrize(
    ("action", "code", "kind"),
    [("oom", 1, "oom_device"), ("raise", 1, "unknown"), ("exit", 1, "unknown"), ("signal", -9, "unknown")],
)
def test_a_rank_goes_wrong_in_its_iteration(tmp_path, action, code, kind):
    bundle, done = run(tmp_path, {"at": {"iteration": 3, "do": action}})
    record = derive(bundle)
    assert done[0].returncode == code
    assert (record.status, record.failure.kind) == ("failed", kind)
    assert len(record.iterations.seconds) == 3


def test_a_signal_can_be_chosen(tmp_path):
    _, done = run(tmp_path, {"at": {"iteration": 0, "do": "signal", "signal": int(signal.SIGTERM)}})
    assert done[0].returncode == -signal.SIGTERM


def test_one_rank_may_hang_while_it_is_told_to(tmp_path):
    with pytest.raises(subprocess.TimeoutExpired):
        run(tmp_path, {"at": {"iteration": 1, "do": "hang"}}, timeout=1)


def test_heartbeats_come_while_time_passes_and_change_nothing_else(tmp_path):
    bundle, _ = run(tmp_path / "a", {"seconds": 0.1, "sleep": True, "beat": 0.02})
    without, _ = run(tmp_path / "b", {"seconds": 0.1, "sleep": True})
    beats = [event for event in bundle.events().ranks[0] if event["kind"] == "heartbeat"]
    assert len(beats) > 6
    assert {"generate", "train"} <= {event["phase"] for event in beats}
    records = [derive(each).model_dump(exclude={"run"}) for each in (bundle, without)]
    assert records[0] == records[1]


def test_garbage_among_the_events_is_damage(tmp_path):
    bundle, _ = run(tmp_path, {"at": {"iteration": 2, "do": "garbage"}})
    with pytest.raises(DamagedBundle, match="is not JSON"):
        derive(bundle)


def test_a_torn_line_is_none(tmp_path):
    bundle, _ = run(tmp_path, {"at": {"iteration": 2, "do": "torn"}})
    assert "was cut short" in derive(bundle).notes[0]


def test_a_flood_is_ten_megabytes(tmp_path):
    bundle, done = run(tmp_path, {"at": {"iteration": 2, "do": "flood"}})
    assert len(done[0].stdout) > 10 * 1024 * 1024
    assert derive(bundle).status == "ok"


def test_a_miscount_fails_the_run(tmp_path):
    bundle, _ = run(tmp_path, {"at": {"iteration": 4, "rank": 1, "do": "counts"}}, ranks=2)
    assert "samples is 9 on rank 1 in iteration 4" in derive(bundle).failure.evidence[0]
