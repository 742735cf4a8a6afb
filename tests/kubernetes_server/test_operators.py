"""A run of every operator is handed over to a real API server that knows its kinds, and taken back.

The definitions of the kinds say nothing of their fields: tests/launch/kubernetes holds the objects to the models that
the operators' projects publish.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from kubernetes import client, config

from suite.launch.kubernetes.client import Cluster
from suite.launch.kubernetes.launcher import hand_over
from tests.kubernetes_server.server import Server
from tests.kubernetes_server.test_accepts import rendered
from tests.waiting import wait_until

pytestmark = pytest.mark.daemon


class Kind(NamedTuple):
    group: str
    version: str
    name: str

    @property
    def plural(self) -> str:
        return f"{self.name.lower()}s"


KINDS = {
    "jobset": Kind("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    "trainjob": Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    "its runtime": Kind("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"),
    "pytorchjob": Kind("kubeflow.org", "v1", "PyTorchJob"),
    "rayjob": Kind("ray.io", "v1", "RayJob"),
    "raycluster": Kind("ray.io", "v1", "RayCluster"),
}


def definition(kind: Kind) -> dict[str, Any]:
    names = {"kind": kind.name, "listKind": f"{kind.name}List", "plural": kind.plural, "singular": kind.name.lower()}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # a group of Kubernetes' own community asks for a word about who approved a definition
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module", autouse=True)
def _operators(server: Server) -> Iterator[None]:
    """Their kinds are known while these tests run; other tests are told that they are not."""
    api = config.new_client_from_config(str(server.kubeconfig()))
    definitions, objects = client.ApiextensionsV1Api(api), client.CustomObjectsApi(api)
    for kind in KINDS.values():
        definitions.create_custom_resource_definition(definition(kind))
    wait_until(lambda: all(is_served(objects, kind) for kind in KINDS.values()))
    yield
    for kind in KINDS.values():
        definitions.delete_custom_resource_definition(f"{kind.plural}.{kind.group}")
    wait_until(lambda: not any(is_served(objects, kind) for kind in KINDS.values()))


def is_served(objects: client.CustomObjectsApi, kind: Kind) -> bool:
    try:
        objects.list_namespaced_custom_object(kind.group, kind.version, "default", kind.plural)
    except client.ApiException as error:
        assert error.status == 404, error
        return False
    return True


@pytest.mark.parametrize("variant", [name for name in KINDS if name.isalpha()])
def test_a_run_is_handed_over_and_taken_back(cluster: Cluster, variant: str) -> None:
    run = hand_over(cluster, rendered(variant, {}, cluster.namespace))
    (files,) = cluster.find("ConfigMap", labelSelector="app.kubernetes.io/name=suite")
    assert files["metadata"]["ownerReferences"][0]["uid"] == run["metadata"]["uid"]
    cluster.delete(run["kind"], run["metadata"]["name"])
    assert cluster.get(run["kind"], run["metadata"]["name"]) is None
