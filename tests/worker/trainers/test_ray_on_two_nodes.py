"""Ray on two real nodes: started beside the ranks of a run and ended with it, or there before with ranks on it."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from suite.launch.cluster.ending import Transcript, read_streams, run_outcome
from suite.launch.cluster.scheduler import Gathered, SchedulerEnd, Stream
from suite.launch.cluster.torchrun import Rendezvous, torchrun_argv
from suite.launch.job import Job
from suite.launch.kubernetes.pod import pod_variables
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from tests.hosts import INTERFACE, LEFT, hosts
from tests.launch.kubernetes.runs import job_of
from tests.needs import require_environment
from tests.synthetic import synthetic_manifest

__all__ = ["hosts"]
pytestmark = [pytest.mark.ranks, pytest.mark.trainers, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[3]
WORKER = "suite_example_backend.ray_worker"
SECONDS = 300


@pytest.fixture
def python() -> str:
    """An interpreter with Ray."""
    return require_environment("verl")


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    made = synthetic_manifest(
        backend="example-ray",
        kind="trainer",
        layout=Layout(nodes=2, devices_per_node=1, data=2),
        warmup=1,
        iterations=3,
    ).model_copy(update={"stack": {}})
    (tmp_path / "manifest.json").write_text(made.model_dump_json(by_alias=True))
    return made


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


def whole_run(transcript: Transcript, iterations: int = 4) -> None:
    """Both ranks told all of a run that ended well, and the second followed the first."""
    found: list[list[dict[str, Any]]] = [[json.loads(line) for line in transcript.events[rank]] for rank in (0, 1)]
    for events in found:
        assert events[-1]["kind"] == "end" and events[-1]["status"] == "ok", transcript.logs
        assert sum(event["kind"] == "iteration" for event in events) == iterations
    assert transcript.notes == []


def test_ranks_on_two_nodes_form_one_ray_cluster_and_leave_nothing(hosts, manifest, tmp_path, python):
    job = Job(
        name="run",
        argv=(python, "-m", WORKER, str(tmp_path / "manifest.json"), "--bundle", str(tmp_path)),
        nodes=2,
        ranks_per_node=1,
    )
    started, logs = [], [tmp_path / f"node-{node}.log" for node in (0, 1)]
    for node, host in enumerate(hosts):
        command = torchrun_argv(job, Rendezvous(address=hosts[0].address, port="29400", node_rank=str(node)))
        with logs[node].open("wb") as log:
            run = host.private(command)
            started.append(
                subprocess.Popen(
                    run, env=variables(), cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            )
    try:
        for process in started:
            process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail("\n".join(log.read_text(errors="replace") for log in logs))
    finally:
        for process in started:
            with suppress(ProcessLookupError):  # the shell and what it started; Ray ends with its rank
                os.killpg(process.pid, signal.SIGKILL)
    outputs = [log.read_bytes() for log in logs]
    assert [process.returncode for process in started] == [0, 0], b"\n".join(outputs).decode()
    streams = [Stream(f"node-{node}", output.splitlines(keepends=True), (node,)) for node, output in enumerate(outputs)]
    whole_run(read_streams(streams, 2))
    for output in outputs:
        (left,) = [line for line in output.decode().splitlines() if line.startswith(LEFT)]
        assert "suite-" not in left and "plasma" not in left and "ray" not in left, left


def test_ranks_are_started_on_a_ray_cluster_that_is_there(hosts, manifest, tmp_path, python):
    """As KubeRay has it: the pods start Ray, the entry point of the job on the head starts the ranks."""
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
        whole_run(transcript)
        end = SchedulerEnd(status="ok")
        assert run_outcome(2, Gathered((output,), end), transcript).status == "ok"
