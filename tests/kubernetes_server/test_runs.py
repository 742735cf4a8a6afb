"""Runs go to a real API server, their pods are played, and bundles like any others come back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from suite.bundle.store import Bundle
from suite.cli.app import app
from suite.launch.cluster.submission import submissions
from tests.kubernetes_server.field import WORK, Field, quick_looks, wait_for
from tests.kubernetes_server.kubelet import Play, StandIn
from tests.kubernetes_server.server import Server
from tests.launch.kubernetes.runs import IMAGE

pytestmark = pytest.mark.daemon
PLACE = ("--device", "cpu", "--nodes", "2", "--gpus-per-node", "2", "--image", IMAGE)


class PlayedField(Field):
    """With a stand-in for its controllers and nodes."""

    @contextmanager
    def playing(self, plays: dict[int, Play] | None = None, with_torchrun: bool = False) -> Iterator[StandIn]:
        pods = self.folder / "pods"
        pods.mkdir()
        with StandIn(self.cluster, self.core, pods, plays or {}, with_torchrun).at_work() as stand_in:
            yield stand_in


@pytest.fixture
def field(server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedField:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(namespace=namespace)))
    quick_looks(monkeypatch)
    return PlayedField(server, namespace, tmp_path, PLACE)


def test_a_run_over_two_nodes_comes_home_whole(field: PlayedField) -> None:
    with field.playing():
        done = field.submit("--json", script={"sleep": True, "seconds": 0.1})
        assert done.exit_code == 0, done.output
    record = field.record()
    assert record.status == "ok"
    assert record.run.launcher == "kubernetes"
    assert record.run.ranks == 4
    assert len(record.iterations.seconds) == 6
    assert record.throughput is not None
    assert "pods run" in done.stderr
    assert list(json.loads(done.stdout)["runs"].values()) == ["ok"]


def test_what_a_claim_holds_comes_home_when_the_pods_and_their_logs_are_gone(field: PlayedField) -> None:
    with field.playing():
        assert field.submit("--detach", "--claim", "results", script={"seconds": 0.01}).exit_code == 0
        wait_for(field.says("Complete"))
        (submission,) = submissions(field.runs)
        for pod in field.cluster.find("Pod"):
            field.core.delete_namespaced_pod(pod["metadata"]["name"], field.namespace, grace_period_seconds=0)
        collected = field.suite("collect", submission.run_id)
        assert collected.exit_code == 0, collected.output
        assert field.cluster.find("Pod") == []
    assert len(field.record().iterations.seconds) == 6


@pytest.mark.ranks
@pytest.mark.timeout(300)
def test_torchrun_and_the_suites_worker_measure_over_two_pods(field: PlayedField) -> None:
    with field.playing(with_torchrun=True):
        where = ("--device", "cpu", "--nodes", "2", "--gpus-per-node", "1", "--image", IMAGE)
        here = ("--stack", f"torch={version('torch')}")  # a CPU build has a version of its own
        done = field.suite("submit", "kubernetes", *WORK, *where, *here, "--iterations", "2")
    assert done.exit_code == 0, done.output
    record = field.record()
    assert record.status == "ok"
    assert record.counts is not None
    assert record.environment.worker is not None
    assert record.environment.worker["image"] == IMAGE
    report = CliRunner().invoke(app, ["report", str(field.runs), "-o", str(field.folder / "report.md")])
    assert report.exit_code == 0, report.output
    assert "deepspeed" in (field.folder / "report.md").read_text()


def failing(rank: int, do: str, **more: Any) -> dict[str, Any]:
    return {"at": {"iteration": 2, "rank": rank, "phase": "train", "do": do, **more}}


FAILURES: dict[str, tuple[dict[str, Any], dict[int, Play], str, str]] = {
    "device memory": (failing(0, "oom"), {}, "oom_device", "out of memory"),
    "host memory": (
        failing(1, "signal", others="hang"),
        {0: Play(terminated={"reason": "OOMKilled", "exitCode": 137})},
        "oom_host",
        "OOMKilled",
    ),
    "disk": (
        failing(3, "signal", others="hang"),
        {
            1: Play(
                ends_as={
                    "phase": "Failed",
                    "reason": "Evicted",
                    "message": 'Usage of EmptyDir volume "scratch" exceeds the limit "16Gi".',
                }
            )
        },
        "disk_full",
        "EmptyDir",
    ),
    "node": (
        failing(2, "signal", others="hang"),
        {
            1: Play(
                ends_as={
                    "phase": "Failed",
                    "reason": "NodeLost",
                    "message": "Node stand-in which was running pod is unresponsive",
                }
            )
        },
        "rank_lost",
        "NodeLost",
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failed_run_is_a_bundle_that_says_why(field: PlayedField, what: str) -> None:
    script, plays, kind, evidence = FAILURES[what]
    with field.playing(plays):
        done = field.submit(script=script)
    assert done.exit_code == 1, done.output
    record = field.record()
    assert record.status == "failed"
    assert record.failure is not None
    assert record.failure.kind == kind
    assert evidence in "\n".join(record.failure.evidence)


def test_a_run_that_takes_too_long_is_a_time_out(field: PlayedField) -> None:
    with field.playing():
        done = field.submit("--timeout", "3s", script={"sleep": True, "seconds": 30})
    assert done.exit_code == 1, done.output
    failure = field.record().failure
    assert failure is not None and failure.kind == "timeout"
    assert "DeadlineExceeded" in failure.evidence[0]


def test_pods_that_no_node_takes_say_what_is_missing(field: PlayedField) -> None:
    reason = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."
    with field.playing({0: Play(waits=reason), 1: Play(waits=reason)}):
        done = field.submit("--pending-timeout", "1s", "--timeout", "1s")
    assert done.exit_code == 1, done.output
    assert reason in done.output
    failure = field.record().failure
    assert failure is not None and failure.kind == "gpu_unavailable"
    assert reason in failure.evidence[0]


def test_an_image_that_cannot_be_pulled_is_named(field: PlayedField) -> None:
    pull = Play(waiting=("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"'))
    with field.playing({0: pull, 1: pull}):
        done = field.submit("--pending-timeout", "1s", "--timeout", "1s")
    assert done.exit_code == 1, done.output
    assert "ImagePullBackOff" in done.output
    failure = field.record().failure
    assert failure is not None and failure.kind == "image_pull"


@contextmanager
def detached(field: PlayedField, until: Callable[[], bool], script: dict[str, Any]) -> Iterator[str]:
    """A run that was submitted by a driver that is gone."""
    with field.playing():
        assert field.submit("--detach", script=script).exit_code == 0
        (submission,) = submissions(field.runs)
        wait_for(until)
        yield submission.run_id


def test_a_failed_run_can_be_done_again_under_its_name(field: PlayedField) -> None:
    # the first attempt's pods are killed from outside, the second's are let be
    with field.playing({1: Play(terminated={"reason": "OOMKilled", "exitCode": 137})}) as stand_in:
        script = {"sleep": True, "seconds": 0.02}
        stand_in.killed_nodes = {1}
        assert field.submit(script=script).exit_code == 1
        stand_in.killed_nodes = set()
        second = field.submit("--retry-failed", script=script)
        assert second.exit_code == 0, second.output
    assert len(list((field.runs / "attic").iterdir())) == 1
    assert Bundle(next(path for path in field.runs.iterdir() if path.name.startswith("deepspeed"))).record() is not None


def test_a_driver_that_died_does_not_matter(field: PlayedField) -> None:
    with detached(field, field.says("Complete"), {"seconds": 0.01}) as run:
        assert field.suite("collect", run).exit_code == 0
    assert field.record().status == "ok"


def test_a_cancelled_run_is_gone_and_its_bundle_says_so(field: PlayedField) -> None:
    script = {"sleep": True, "seconds": 2}
    with detached(field, field.says("iteration [1-5]"), script) as run:
        assert field.suite("cancel", run).exit_code == 0
        wait_for(lambda: not field.left())
        collected = field.suite("collect", run)
    assert collected.exit_code == 1
    record = field.record()
    assert record.status == "interrupted"
    assert record.iterations.seconds


def test_a_namespace_that_forbids_and_a_quota_that_is_too_small_leave_nothing(
    field: PlayedField, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = {"pods": "1"}
    field.core.create_namespaced_resource_quota(
        field.namespace, {"metadata": {"name": "small"}, "spec": {"hard": hard}}
    )
    field.core.patch_namespaced_resource_quota_status(
        "small", field.namespace, {"status": {"hard": hard, "used": {"pods": "0"}}}
    )
    refused = field.submit()
    assert refused.exit_code == 2
    assert "quota small" in refused.output and "needs 2" in refused.output
    monkeypatch.setenv("KUBECONFIG", str(field.server.kubeconfig("guest", field.namespace)))
    forbidden = field.submit()
    assert forbidden.exit_code == 2
    assert "you may not do this" in forbidden.output
    for result in (refused, forbidden):
        assert len(result.stderr.strip().splitlines()) == 1
    monkeypatch.setenv("KUBECONFIG", str(field.server.kubeconfig(namespace=field.namespace)))
    assert field.left() == []
    assert not field.runs.exists()
