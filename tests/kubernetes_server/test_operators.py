"""A real API server holds the operators' objects to definitions made from the models that their projects publish, and
KubeRay's from the fields that are used."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, config

from suite.launch.kubernetes.client import Cluster, Refused
from suite.launch.kubernetes.hand_over import hand_over
from suite.launch.kubernetes.ray import VARIANTS as RAY_VARIANTS
from tests.kubernetes_server.crds import RAY, TRAINER, TRAINING, definitions
from tests.kubernetes_server.server import Server
from tests.kubernetes_server.test_accepts import rendered
from tests.launch.kubernetes.runs import FULL

pytestmark = pytest.mark.daemon
VARIANTS = ("jobset", "trainjob", "pytorchjob", "mpijob", "rayjob", "raycluster")
WAIT_SECONDS = 30.0


@pytest.fixture(scope="module", autouse=True)
def _operators(server: Server) -> Iterator[None]:
    """Their kinds are known while these tests run; other tests are told that they are not."""
    api = config.new_client_from_config(str(server.kubeconfig()))
    made = client.ApiextensionsV1Api(api)
    names = []
    for body in definitions():
        made.create_custom_resource_definition(body)
        names.append(body["metadata"]["name"])
    objects = client.CustomObjectsApi(api)
    for kind in (*TRAINER, *TRAINING, *RAY):
        wait_for(lambda kind=kind: served(objects, kind))
    yield
    for name in names:
        made.delete_custom_resource_definition(name)
    for kind in (*TRAINER, *TRAINING, *RAY):
        wait_for(lambda kind=kind: not served(objects, kind))


def served(objects: client.CustomObjectsApi, kind: Any) -> bool:
    try:
        objects.list_namespaced_custom_object(kind.group, kind.version, "default", kind.plural)
    except client.ApiException as error:
        assert error.status == 404, error
        return False
    return True


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def lost(asked: Any, made: Any, path: str = "") -> list[str]:
    """What the server dropped or changed of an object: a field that it does not know goes without a word."""
    if isinstance(asked, dict):
        if not isinstance(made, dict):
            return [path]
        return [line for key, value in asked.items() for line in lost(value, made.get(key), f"{path}.{key}")]
    if isinstance(asked, list):
        if not isinstance(made, list) or len(made) != len(asked):
            return [path]
        return [line for index, value in enumerate(asked) for line in lost(value, made[index], f"{path}[{index}]")]
    return [] if asked == made else [f"{path}: {asked!r} became {made!r}"]


@pytest.mark.parametrize("given", [{}, FULL], ids=["least", "most"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_object_is_taken_whole(cluster: Cluster, variant: str, given: dict[str, Any]) -> None:
    for body in rendered(variant, given, cluster.namespace):
        if body["apiVersion"] == "batch/v1":
            continue  # the Job beside a RayCluster: test_accepts
        assert lost(body, cluster.create(body, dry_run=True)) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_is_handed_over_and_taken_back(cluster: Cluster, variant: str) -> None:
    objects = rendered(variant, {}, cluster.namespace)
    run = hand_over(cluster, objects)
    (files,) = cluster.find("ConfigMap", labelSelector="app.kubernetes.io/name=suite")
    assert files["metadata"]["ownerReferences"][0]["uid"] == run["metadata"]["uid"]
    cluster.delete(run["kind"], run["metadata"]["name"])
    assert cluster.get(run["kind"], run["metadata"]["name"]) is None


def operators_own(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The last object of a kind that Kubernetes itself does not have."""
    return [body for body in objects if body["apiVersion"] not in ("v1", "batch/v1")][-1]


def cluster_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Of a RayJob or a RayCluster."""
    found: dict[str, Any] = spec.get("rayClusterSpec", spec)
    return found


def nodes_of(variant: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Where a run's object says how many nodes there are."""
    if variant == "jobset":
        found: dict[str, Any] = spec["replicatedJobs"][0]
    elif variant == "trainjob":
        found = spec["trainer"]
    elif variant in RAY_VARIANTS:
        found = cluster_of(spec)["workerGroupSpecs"][0]
    else:
        found = spec["pytorchReplicaSpecs" if variant == "pytorchjob" else "mpiReplicaSpecs"]["Worker"]
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_wrong_type_is_refused_and_an_unknown_field_noticed(cluster: Cluster, variant: str) -> None:
    body = operators_own(rendered(variant, {}, cluster.namespace))
    wrong = copy.deepcopy(body)
    nodes_of(variant, wrong["spec"])["numNodes" if variant == "trainjob" else "replicas"] = "two"
    with pytest.raises(Refused, match=r"two|integer|Invalid value"):
        cluster.create(wrong, dry_run=True)
    strange = copy.deepcopy(body)
    nodes_of(variant, strange["spec"])["replicaz"] = 2
    assert [path for path in lost(strange, cluster.create(strange, dry_run=True)) if "replicaz" in path]


@pytest.mark.parametrize("variant", RAY_VARIANTS)
@pytest.mark.parametrize(
    ("place", "field"), [("headGroupSpec", "template"), ("workers", "groupName"), ("", "headGroupSpec")]
)
def test_a_ray_cluster_that_lacks_a_part_is_refused(cluster: Cluster, variant: str, place: str, field: str) -> None:
    body = copy.deepcopy(operators_own(rendered(variant, {}, cluster.namespace)))
    spec = cluster_of(body["spec"])
    part = {"": spec, "headGroupSpec": spec["headGroupSpec"], "workers": spec["workerGroupSpecs"][0]}[place]
    del part[field]
    with pytest.raises(Refused, match=rf"{field}.*[Rr]equired"):
        cluster.create(body, dry_run=True)
