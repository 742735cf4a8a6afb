"""Runs whose pods wait: what a real API server and the suite do before any node takes them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from suite.launch.cluster.submission import submissions
from tests.kubernetes_server.controllers import Controllers
from tests.kubernetes_server.field import Field, quick_looks
from tests.kubernetes_server.server import Server
from tests.launch.kubernetes.runs import IMAGE
from tests.waiting import wait_until

pytestmark = pytest.mark.daemon
PLACE = ("--device", "cpu", "--nodes", "2", "--gpus-per-node", "2", "--image", IMAGE)
REASON = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."


@pytest.fixture
def field(server: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(namespace=namespace)))
    quick_looks(monkeypatch)
    field = Field(server, namespace, tmp_path, PLACE)
    with Controllers(field.cluster, node=None, waits=REASON).at_work():
        yield field


def test_pods_that_no_node_takes_say_what_is_missing(field: Field) -> None:
    done = field.submit("--pending-timeout", "1s", "--timeout", "1s")
    assert done.exit_code == 1, done.output
    assert REASON in done.output
    failure = field.record().failure
    assert failure is not None and failure.kind == "gpu_unavailable"
    assert REASON in failure.evidence[0]


def test_a_cancelled_run_is_gone_and_its_bundle_says_so(field: Field) -> None:
    assert field.submit("--detach").exit_code == 0
    (submission,) = submissions(field.runs)
    wait_until(field.says("Insufficient"))
    assert field.suite("cancel", submission.run_id).exit_code == 0
    wait_until(lambda: not field.left())
    assert field.suite("collect", submission.run_id).exit_code == 1
    assert field.record().status == "interrupted"


def of_a_small_quota(field: Field, monkeypatch: pytest.MonkeyPatch) -> Result:
    hard, about = {"pods": "1"}, {"name": "small"}
    field.core.create_namespaced_resource_quota(field.namespace, {"metadata": about, "spec": {"hard": hard}})
    status = {"status": {"hard": hard, "used": {"pods": "0"}}}
    field.core.patch_namespaced_resource_quota_status("small", field.namespace, status)
    return field.submit()


def of_a_guest(field: Field, monkeypatch: pytest.MonkeyPatch) -> Result:
    with monkeypatch.context() as as_guest:
        as_guest.setenv("KUBECONFIG", str(field.server.kubeconfig("guest", field.namespace)))
        return field.submit()


@pytest.mark.parametrize(
    ("submitted", "words"), [(of_a_small_quota, ("quota small", "needs 2")), (of_a_guest, ("you may not do this",))]
)
def test_a_namespace_that_refuses_is_told_in_one_line_and_nothing_is_left(field, monkeypatch, submitted, words):
    refused = submitted(field, monkeypatch)
    assert refused.exit_code == 2
    assert all(word in refused.output for word in words)
    assert len(refused.stderr.strip().splitlines()) == 1
    assert field.left() == []
    assert not field.runs.exists()
