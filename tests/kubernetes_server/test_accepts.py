"""A real API server takes every plain object that is rendered, and refuses what is broken."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from suite.launch.kubernetes.client import Cluster, Refused
from suite.launch.kubernetes.launcher import hand_over, pod_templates
from suite.launch.kubernetes.pod import parse, render
from suite.spec.base import UsageError
from tests.launch.kubernetes.runs import FULL, VARIANTS, job_of, settings_of

pytestmark = pytest.mark.daemon
FILES = {"manifest.json": "{}\n"}
Objects = list[dict[str, Any]]
#: of Kubernetes after 1.20; tests/launch/kubernetes holds them to newer schemas and to what these pass
NEWER = ("completionMode", "podFailurePolicy")


def rendered(variant: str, given: dict[str, Any], namespace: str) -> Objects:
    settings = settings_of(variant, **{**given, "namespace": namespace})  # type: ignore[arg-type]
    return parse(render(job_of(), settings, FILES, {"suite/run-id": "run"}))


def plain(objects: Objects) -> Objects:
    """What Kubernetes itself knows of them, and a pod of each kind, as its controllers will make them."""
    known = [copy.deepcopy(body) for body in objects if body["apiVersion"] in ("v1", "batch/v1")]
    for body in known:
        for field in NEWER if body["kind"] == "Job" else ():
            body["spec"].pop(field, None)
    named = {"generateName": "pod-", "namespace": objects[0]["metadata"]["namespace"]}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], **named}}
        for _, template in pod_templates(objects)
    ]
    return known + pods


@pytest.mark.parametrize("given", [{}, FULL], ids=["least", "most"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_plain_object_is_accepted(cluster: Cluster, variant: str, given: dict[str, Any]) -> None:
    for body in plain(rendered(variant, given, cluster.namespace)):
        cluster.create(body, dry_run=True)
    assert cluster.find("ConfigMap", labelSelector="suite/run") == []


def of_container(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["template"]["spec"]["containers"][0]


BROKEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda job: job["metadata"].update(name="Upper"),
    "deadline": lambda job: job["spec"].update(activeDeadlineSeconds=-5),
    "unknown volume": lambda job: of_container(job)["volumeMounts"][0].update(name="other"),
    "unequal GPUs": lambda job: of_container(job)["resources"]["requests"].update({"nvidia.com/gpu": "4"}),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_refused_in_one_line_and_leaves_nothing(cluster: Cluster, how: str) -> None:
    objects = rendered("job", {}, cluster.namespace)
    BROKEN[how](objects[-1])
    with pytest.raises(UsageError) as refusal:
        hand_over(cluster, objects)
    assert "\n" not in str(refusal.value)
    for kind in ("ConfigMap", "Service", "Job"):
        assert cluster.find(kind, labelSelector="app.kubernetes.io/name=suite") == []


def test_an_operator_that_is_not_installed_is_named(cluster: Cluster) -> None:
    for variant in ("jobset", "trainjob", "pytorchjob", "volcano", "rayjob", "raycluster"):
        with pytest.raises(Refused, match="install what brings it"):
            hand_over(cluster, rendered(variant, {}, cluster.namespace))
    assert cluster.find("ConfigMap", labelSelector="app.kubernetes.io/name=suite") == []
