"""Runs in real pods: a kubelet and containerd on this machine start what the suite renders, and bundles come back.

The API server, the kubelet, containerd, runc, the network of the pods and their control groups are real. The Job
controller, the scheduler and the names are stand-ins (tests/kubernetes_server/controllers.py, names.py).
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from suite.bundle.store import Bundle
from suite.launch.cluster.submission import submissions
from suite.launch.kubernetes.pod import RUN_LABEL, run_labels
from tests.kubernetes_server.controllers import Controllers
from tests.kubernetes_server.field import Field, quick_looks
from tests.kubernetes_server.node import NAME, Node
from tests.kubernetes_server.node_image import ENGINES, SCRIPTED
from tests.kubernetes_server.scripted_torchrun import WORKER
from tests.waiting import wait_until

pytestmark = [pytest.mark.daemon, pytest.mark.kubelet, pytest.mark.timeout(300)]
PLACE = ("--device", "cpu", "--nodes", "2", "--gpus-per-node", "1", "--shared-memory", "64Mi")
LOOK_SECONDS, END_SECONDS = 0.5, 120.0
#: a run of some seconds in which something can be done to its pods; its phases are long beside what a busy machine adds
SLOW = {"sleep": True, "seconds": 1.0, "measured": True}


@pytest.fixture
def pods(node: Node, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    """A namespace whose Jobs get pods of the ranks that follow a script; afterwards nothing of it may be left."""
    monkeypatch.setenv("KUBECONFIG", str(node.server.kubeconfig(namespace=namespace)))
    quick_looks(monkeypatch, LOOK_SECONDS)
    field = Field(node.server, namespace, tmp_path, (*PLACE, "--image", SCRIPTED))
    with Controllers(field.cluster, NAME).at_work():
        yield field
        for job in field.cluster.find("Job"):
            field.cluster.delete("Job", job["metadata"]["name"])
        nothing_left(field, node)


@contextmanager
def going_on(field: Field, *more: str, script: dict[str, Any] = SLOW, iterations: int = 12) -> Iterator[str]:
    """A run whose ranks iterate and whose driver is gone; the id of it."""
    assert field.submit("--detach", *more, script=script, iterations=iterations).exit_code == 0
    (submission,) = submissions(field.runs)
    wait_until(field.says("iteration [1-9]"))
    yield submission.run_id


def nothing_left(field: Field, node: Node) -> None:
    """A kubelet takes its time to give back what a pod had."""
    wait_until(lambda: field.left() == [] and node.running() == [], END_SECONDS)


def working() -> list[int]:
    """Processes of ranks by script in any pod."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if WORKER in (one.info["cmdline"] or ())]


def are_real(field: Field, run: str) -> bool:
    """Whether both pods of a run had an address of their own and a container that containerd made."""
    label = f"{RUN_LABEL}={run_labels(run)[RUN_LABEL]}"
    statuses = [body["status"] for body in field.cluster.find("Pod", labelSelector=label)]
    containers = [one["containerID"].partition(":")[0] for each in statuses for one in each["containerStatuses"]]
    return len({each["podIP"] for each in statuses}) == 2 and containers == ["containerd"] * 2


def test_a_run_over_two_pods_comes_home_whole(pods: Field) -> None:
    done = pods.submit(script=SLOW, iterations=3)
    assert done.exit_code == 0, done.output
    record = pods.record()
    assert record.status == "ok"
    assert record.run.ranks == 2
    assert len(record.iterations.seconds) == 4
    assert are_real(pods, record.run.id)


def claim(field: Field, folder: Path) -> str:
    """A claim that is bound to a folder of this machine, as a provisioner leaves it."""
    folder.mkdir()
    folder.chmod(0o777)
    name, size = f"results-{field.namespace}", {"storage": "1Gi"}
    how = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    owner = {"kind": "PersistentVolumeClaim", "namespace": field.namespace, "name": name}
    volume = {**how, "capacity": size, "hostPath": {"path": str(folder)}, "claimRef": owner}
    field.core.create_persistent_volume({"metadata": {"name": name}, "spec": volume})
    asked = {"metadata": {"name": name}, "spec": {**how, "resources": {"requests": size}, "volumeName": name}}
    made = field.core.create_namespaced_persistent_volume_claim(field.namespace, asked)
    field.core.patch_persistent_volume(name, {"spec": {"claimRef": {"uid": made.metadata.uid}}})
    field.core.patch_persistent_volume_status(name, {"status": {"phase": "Bound"}})
    field.core.patch_namespaced_persistent_volume_claim_status(name, field.namespace, {"status": {"phase": "Bound"}})
    return name


def test_what_a_claim_holds_comes_home_when_the_pods_and_their_logs_are_gone(pods: Field) -> None:
    name = claim(pods, pods.folder / "claim")
    assert pods.submit("--detach", "--claim", name, script={"seconds": 0.01}).exit_code == 0
    # not ``says``: that takes pods that succeeded, and the Job would fail for pods that go before its controller looks
    wait_until(lambda: bool(pods.cluster.find("Job")[0].get("status", {}).get("conditions")))
    (submission,) = submissions(pods.runs)
    for pod in pods.cluster.find("Pod"):
        pods.core.delete_namespaced_pod(pod["metadata"]["name"], pods.namespace, grace_period_seconds=0)
    collected = pods.suite("collect", submission.run_id)
    assert collected.exit_code == 0, collected.output
    assert len(pods.record().iterations.seconds) == 6


def test_a_failed_run_says_why_and_can_be_done_again_under_its_name(pods: Field) -> None:
    no_memory = {"at": {"iteration": 2, "rank": 0, "phase": "train", "do": "oom"}}
    assert pods.submit(script=no_memory).exit_code == 1
    failure = pods.record().failure
    assert failure is not None and failure.kind == "oom_device"
    pods.submit("--retry-failed", script=no_memory)
    (first,) = (pods.runs / "attic").iterdir()
    (second,) = (path for path in pods.runs.iterdir() if path.name.startswith("deepspeed"))
    runs = [Bundle(first).record(), Bundle(second).record()]
    assert len({record.run.started for record in runs if record is not None}) == 2


@pytest.mark.ranks
@pytest.mark.thorough
def test_deepspeed_ranks_measure_over_two_pods(pods: Field) -> None:
    stack = ("--stack", f"torch={version('torch')}")  # a CPU build has a version of its own
    done = pods.submit("--image", ENGINES, *stack, "--memory-per-rank", "3g", "--smoke", iterations=2)
    assert done.exit_code == 0, done.output
    assert re.search(r"network across nodes, 2 ranks by gloo: all-reduce [\d.]+ GB/s", done.output), "the smoke run's"
    record = pods.record()
    assert record.status == "ok"
    assert record.run.ranks == 2
    assert record.environment.worker["image"] == ENGINES
    assert are_real(pods, record.run.id)


@contextmanager
def empty_registry(folder: Path) -> Iterator[str]:
    """Where a registry answers that knows no image."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.thorough
def test_an_image_that_no_registry_has_ends_the_run_before_its_deadline_of_an_hour(pods, node, tmp_path, monkeypatch):
    monkeypatch.setattr("suite.launch.kubernetes.pods._SOME_TRIES_SECONDS", 15.0)
    (tmp_path / "none").mkdir()
    with empty_registry(tmp_path / "none") as registry:
        image = f"{registry}/lab/suite-engines@sha256:{'5' * 64}"
        done = pods.submit("--image", image, "--timeout", "1h", "--pending-timeout", "1h")
    assert done.exit_code == 1, done.output
    failure = pods.record().failure
    assert failure is not None and failure.kind == "image_pull"
    assert image in "\n".join(failure.evidence)
    nothing_left(pods, node)


@pytest.mark.parametrize(
    ("options", "script", "kind", "proof"),
    [
        pytest.param(
            ("--memory-per-rank", "64m", "--shared-memory", "16Mi"),
            {"at": {"iteration": 2, "rank": 1, "do": "eat", "others": "hang"}, **SLOW},
            *("oom_host", "OOMKilled"),
            id="a container that the kernel kills for its memory",
        ),
        pytest.param(
            ("--scratch", "8Mi"),
            {"at": {"iteration": 2, "rank": 1, "do": "fill", "mebibytes": 32, "others": "hang"}, **SLOW},
            *("disk_full", "EmptyDir"),
            id="a pod that is evicted for its disk",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            ("--timeout", "5s"),
            {"sleep": True, "seconds": 120},
            *("timeout", ""),
            id="a run that takes too long",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_ended_a_run_is_told_with_its_proof(pods, options, script, kind, proof):
    done = pods.submit(*options, script=script)
    assert done.exit_code == 1, done.output
    failure = pods.record().failure
    assert failure is not None and failure.kind == kind
    assert proof in "\n".join(failure.evidence)


@pytest.mark.thorough
def test_a_run_that_ends_while_the_kubelet_is_away_is_collected_when_it_is_back(pods: Field, node: Node) -> None:
    with going_on(pods, iterations=5) as run:
        node.kill_kubelet()
        wait_until(lambda: len(node.running()) == 2)  # the containers that hold the namespaces
        node.start_kubelet()
        collected = pods.suite("collect", run, "--wait")
    assert collected.exit_code == 0, collected.output
    assert len(pods.record().iterations.seconds) == 6


@pytest.mark.thorough
def test_a_run_that_ends_while_containerd_is_away_is_lost_and_says_so(pods: Field, node: Node) -> None:
    with going_on(pods, iterations=5) as run:
        node.kill_containerd()
        wait_until(lambda: not working())
        node.start_containerd()
        collected = pods.suite("collect", run, "--wait")
    assert collected.exit_code == 1, collected.output
    record = pods.record()
    assert record.failure is not None and record.failure.kind == "rank_lost"
    assert "ended while its runtime was away (Unknown)" in record.failure.evidence[0]
    assert record.iterations.seconds


@pytest.mark.thorough
def test_a_cancelled_run_leaves_no_pod_and_no_container(pods: Field, node: Node) -> None:
    with going_on(pods, iterations=60) as run:
        assert pods.suite("cancel", run).exit_code == 0
        nothing_left(pods, node)
        assert pods.suite("collect", run).exit_code == 1
    record = pods.record()
    assert record.status == "interrupted"
    assert record.iterations.seconds


@pytest.mark.thorough
def test_logs_that_the_kubelet_cut_come_home_whole(pods: Field) -> None:
    # ten megabytes in the third iteration: five times what the kubelet keeps in one file
    script = {"at": {"iteration": 2, "do": "flood"}, **SLOW, "seconds": 4.0}
    done = pods.submit(script=script, iterations=8)
    assert done.exit_code == 0, done.output
    assert len(pods.record().iterations.seconds) == 9
    (bundle,) = [path for path in pods.runs.iterdir() if not path.name.startswith(".")]
    for number in range(2):
        assert (bundle / "logs" / f"node-{number}.log").read_text().count("x" * 1023) == 10 * 1024
