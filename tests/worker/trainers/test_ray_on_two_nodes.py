"""Ranks on a Ray cluster of two real nodes that was there before; ranks that start Ray: tests/cli/test_slurm_ray.py."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from suite.launch.cluster.ending import read_streams, run_outcome
from suite.launch.cluster.scheduler import Gathered, SchedulerEnd, Stream
from suite.launch.kubernetes.pod import pod_variables
from suite.spec.layout import Layout
from tests.hosts import INTERFACE, hosts
from tests.launch.kubernetes.runs import job_of
from tests.needs import require_environment
from tests.synthetic import synthetic_manifest
from tests.worker.tiny import ROOT, write_manifest

__all__ = ["hosts"]
pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(400)]

WORKER = "suite_example_backend.ray_worker"
SECONDS = 300


def variables(**more: str) -> dict[str, str]:
    """Of a rank on a host. Its name resolves to the loopback interface, which is not how nodes see each other."""
    paths = f"{ROOT}{os.pathsep}{ROOT / 'tests/example_backend'}"
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {
        **mine,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "SUITE_EVENTS_ON_STDOUT": "all",
        "CUDA_VISIBLE_DEVICES": "",
        **more,
    }


def test_ranks_are_started_on_a_ray_cluster_that_is_there(hosts, tmp_path):
    """As KubeRay has it: the pods start Ray, the entry point of the job on the head starts the ranks."""
    python = require_environment("verl")
    layout = Layout(nodes=2, devices_per_node=1, data=2)
    made = synthetic_manifest(backend="example-ray", kind="trainer", layout=layout, warmup=1, iterations=3)
    write_manifest(made.model_copy(update={"stack": {}}), tmp_path)
    folder, head = hosts[0].folder / "ray", f"{hosts[0].address}:6379"
    # what its pods find set, and devices that none of Ray's processes finds
    quiet = {name: value for name, value in pod_variables(job_of(device_count=0)).items() if name.startswith("RAY_")}
    quiet |= {"CUDA_VISIBLE_DEVICES": "1000"}
    argv = [python, "-m", WORKER, str(tmp_path / "manifest.json"), "--bundle", str(tmp_path)]
    wanted = {"argv": argv, "nodes": 2, "ranks_per_node": 1, "limit_seconds": 240}
    wanted["variables"] = {"CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": INTERFACE}
    with ExitStack() as ending:
        for host in hosts:
            own = ("--head", "--port", "6379", "--include-dashboard", "false", "--temp-dir", str(folder))
            joins = own if host is hosts[0] else ("--address", head)
            start = (python, "-m", "ray.scripts.scripts", "start", "--node-ip-address", host.address, *joins)
            slots = ("--num-cpus", "16", "--num-gpus", "1", "--object-store-memory", str(80 << 20))
            keeper = (sys.executable, "-m", "suite.worker.trainers.guardian", str(folder), *start, *slots)
            node = subprocess.Popen(
                host.argv(keeper), env=variables(**quiet), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            ending.callback(node.wait, 120)
            ending.callback(node.stdin.close)  # type: ignore[union-attr]
            assert node.stdout is not None and node.stdout.readline() == b"started\n"
        done = subprocess.run(
            hosts[0].argv([python, "-m", "suite.worker.ray_ranks"]),
            env=variables(**quiet, RAY_ADDRESS=head, SUITE_RANKS=json.dumps(wanted)),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            timeout=SECONDS,
        )
        output = Stream("submitter", done.stdout.splitlines(keepends=True), (0, 1))
        assert done.returncode == 0, done.stdout.decode()
        transcript = read_streams([output], 2)
        for rank in (0, 1):
            events = [json.loads(line) for line in transcript.events[rank]]
            assert events[-1]["kind"] == "end" and events[-1]["status"] == "ok", transcript.logs
            assert sum(event["kind"] == "iteration" for event in events) == 4
        assert transcript.notes == []
        end = SchedulerEnd(status="ok")
        assert run_outcome(2, Gathered((output,), end), transcript).status == "ok"
