"""Ray of a run: nobody else reaches it; one that is named and not there is told; on one that is there ranks start."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from unittest import mock

import pytest

from suite.launch.cluster.ending import read_streams, run_outcome
from suite.launch.cluster.launcher import Gathered, SchedulerEnd, Stream
from suite.launch.kubernetes.pod import pod_variables
from suite.spec.layout import Layout
from suite.worker.rank import ConfigError
from suite.worker.trainers.ray_cluster import RayCluster
from tests.hosts import INTERFACE, hosts
from tests.launch.kubernetes.runs import job_of
from tests.needs import require_environment
from tests.synthetic import synthetic_manifest
from tests.worker.tiny import ROOT, write_manifest
from tests.worker.trainers.runs import ALONE


@pytest.fixture(autouse=True)
def own_variables():
    """What it sets for its processes ends with the test."""
    with mock.patch.dict(os.environ):
        yield


@pytest.mark.parametrize("address", ["local", "ray://head:10001", "head", ":6379", "head:port", "head:65536"])
def test_what_is_no_address_of_a_head_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match="wants HOST:PORT of a head"):
        RayCluster(ALONE, "cpu")


def test_an_address_where_nothing_listens_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening, so nobody else answers there either
        address = "127.0.0.1:{}".format(taken.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConfigError, match=f"nothing answers at RAY_ADDRESS={address}"):
            RayCluster(ALONE, "cpu")


def test_one_where_somebody_listens_is_taken_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:{}".format(head.getsockname()[1]))
        cluster = RayCluster(ALONE, "cpu")
        assert cluster.processes is None
        cluster.close()


#: starts Ray as a run of one node does, with an actor, and tells on which addresses it all listens
ALONE_ON_A_NODE = """
import os, sys
import psutil
import torch
from suite.worker.trainers.processes import below
from suite.worker.trainers.ray_cluster import RayCluster
from tests.needs import require_environment
from suite.worker.world import World

cluster = RayCluster(World(0, 1, 0, 1, torch.device("cpu")), "cpu")
ray = cluster.connect(job=4711)
actor = ray.remote(type("Actor", (), {"answer": lambda self: "answered"})).remote()
print(ray.get(actor.answer.remote()), ray.get_runtime_context().get_job_id(), flush=True)
sys.stdin.readline()
found = [psutil.Process(pid).net_connections("tcp") for pid in (os.getpid(), *below(os.getpid()))]
addresses = {each.laddr.ip.replace("::ffff:", "") for some in found for each in some if each.status == "LISTEN"}
print(*sorted(addresses), flush=True)
ray.shutdown()
cluster.close()
"""


@pytest.mark.ranks
@pytest.mark.trainers
@pytest.mark.timeout(400)
def test_two_at_once_on_a_machine_listen_on_loopback_alone_and_do_not_meet() -> None:
    command = [require_environment("verl"), "-c", ALONE_ON_A_NODE]
    runs = [subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    assert [run.stdout.readline() for run in runs] == ["answered 67120000\n"] * 2, "each has its own"
    for run in runs:
        assert run.communicate("\n", 120)[0] == "127.0.0.1\n"


__all__ = ["hosts"]

WORKER = "suite_example_backend.ray_worker"
SECONDS = 300


def variables(**more: str) -> dict[str, str]:
    """Of a rank on a host. Its name resolves to the loopback interface, which is not how nodes see each other."""
    paths = f"{ROOT}{os.pathsep}{ROOT / 'tests/example_backend'}"
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": INTERFACE, "CUDA_VISIBLE_DEVICES": ""}
    return {**mine, **own, "SUITE_EVENTS_ON_STDOUT": "all", **more}


@pytest.mark.ranks
@pytest.mark.trainers
@pytest.mark.timeout(400)
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
            assert node.stdout.readline() == b"started\n"
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
