"""An API server for the whole session, a namespace for each test, and a node. These tests come last: it may still be
built."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from suite.launch.kubernetes.client import Cluster, connect
from tests.kubernetes_server import node as nodes
from tests.kubernetes_server import server as servers
from tests.kubernetes_server.node import Node, started_node
from tests.kubernetes_server.server import Server, started_server
from tests.needs import skip_outside_ci, started_or_skipped

HERE = Path(__file__).parent
CANNOT_START = "a Kubernetes API server cannot be started here"
NO_NODE = "a Kubernetes node cannot be started here"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: HERE in item.path.parents)


def _need(cannot: str, lacks: list[str]) -> None:
    """Building takes minutes: only CI and the targets of the Makefile, which set the variable, insist on it."""
    if not lacks:
        return
    reason = f"{cannot}: no {', '.join(lacks)}"
    if os.environ.get("SUITE_TEST_KUBE_REQUIRED"):
        pytest.fail(reason)
    skip_outside_ci(reason)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    _need(CANNOT_START, servers.missing())
    with started_or_skipped(CANNOT_START, started_server()) as started:
        yield started


@pytest.fixture(scope="session")
def node(server: Server) -> Iterator[Node]:
    _need(NO_NODE, nodes.missing())
    with started_or_skipped(NO_NODE, started_node(server)) as started:
        yield started


@pytest.fixture
def namespace(server: Server) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    server.core().create_namespace({"metadata": {"name": name}})
    return name


@pytest.fixture
def cluster(server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """That namespace, with the classes that the fullest settings name."""
    path = server.kubeconfig(namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(path))
    api = config.new_client_from_config(str(path))
    for make in (
        lambda: client.SchedulingV1Api(api).create_priority_class({"metadata": {"name": "batch-high"}, "value": 1}),
        lambda: client.NodeV1Api(api).create_runtime_class({"metadata": {"name": "nvidia"}, "handler": "nvidia"}),
    ):
        try:
            make()
        except client.ApiException as error:
            assert error.status == 409, error
    return connect()
