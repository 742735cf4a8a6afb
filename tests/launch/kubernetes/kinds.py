"""What the schemas of Kubernetes and Kubeflow say, and what they let pass although no cluster takes it."""

import json
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from suite.launch.kubernetes.launcher import pod_templates

SCHEMA_VERSIONS = ("1.28", "1.37")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
#: names longer than these are refused by KubeRay's operator, which appends to them
_LONGEST_NAME = {"RayJob": 47, "RayCluster": 53}


def schema_problems(body: dict[str, Any]) -> list[str]:
    """What the schema of the object's kind says against it; unknown fields are problems.

    Volcano and KubeRay publish none: of their objects it is the pods that are held to Kubernetes'.
    """
    if body["apiVersion"] in ("v1", "batch/v1"):
        return _kubernetes_problems(body)
    if body["apiVersion"] in ("jobset.x-k8s.io/v1alpha2", "trainer.kubeflow.org/v1alpha1"):
        return _trainer_problems(body)
    if body["apiVersion"] == "kubeflow.org/v1":
        return _training_problems(body)
    assert body["apiVersion"] in ("batch.volcano.sh/v1alpha1", "ray.io/v1"), body["apiVersion"]
    pods = [{"apiVersion": "v1", "kind": "Pod", **template} for template in _pods_in(body)]
    named = [{**pod, "metadata": {**pod["metadata"], "name": "pod"}} for pod in pods]
    return [problem for pod in named for problem in _kubernetes_problems(pod)]


def _pods_in(part: Any) -> Iterator[dict[str, Any]]:
    """The templates of pods, wherever they stand."""
    if isinstance(part, dict) and "containers" in part.get("spec", {}):
        yield part
    elif isinstance(part, (dict, list)):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _pods_in(inner)


def _kubernetes_problems(body: dict[str, Any]) -> list[str]:
    import kubernetes_validate

    problems = []
    for version in SCHEMA_VERSIONS:
        try:
            kubernetes_validate.validate(body, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            problems.append(f"{version}: {error.message}")
    return problems


def _trainer_problems(body: dict[str, Any]) -> list[str]:
    from kubeflow_trainer_api import models
    from pydantic import ValidationError

    group = "Jobset" if body["kind"] == "JobSet" else "Trainer"
    version = body["apiVersion"].rpartition("/")[2].capitalize()
    model = getattr(models, f"{group}{version}{body['kind']}")
    try:
        understood = model.from_dict(body).to_dict()
    except ValidationError as error:
        return [str(error)]
    return _differences(body, understood)


def _training_problems(body: dict[str, Any]) -> list[str]:
    import kubernetes.client
    from kubeflow.training import models

    class Answer:
        data = json.dumps(body)

    # the models of Kubeflow lean on those of Kubernetes, where the client looks for both
    added = {name: model for name, model in vars(models).items() if name.startswith("KubeflowOrg")}
    try:
        with patch.dict(vars(kubernetes.client.models), added):
            client = kubernetes.client.ApiClient()
            understood = client.sanitize_for_serialization(client.deserialize(Answer, f"KubeflowOrgV1{body['kind']}"))
    except ValueError as error:
        return [str(error)]
    return _differences(body, understood)


def _differences(asked: Any, understood: Any, path: str = "") -> list[str]:
    """Where a model dropped or changed something: models drop what they do not know without a word."""
    if isinstance(asked, dict) and isinstance(understood, dict):
        keys = sorted(set(asked) | set(understood))
        return [line for key in keys for line in _differences(asked.get(key), understood.get(key), f"{path}.{key}")]
    if isinstance(asked, list) and isinstance(understood, list) and len(asked) == len(understood):
        pairs = enumerate(zip(asked, understood, strict=True))
        return [line for index, (a, b) in pairs for line in _differences(a, b, f"{path}[{index}]")]
    return [] if asked == understood else [f"{path}: {asked!r} became {understood!r}"]


def cluster_problems(objects: list[dict[str, Any]]) -> list[str]:
    """Rules of this house, and of controllers that tell only once a run is there. Servers' are tested with servers."""
    names = {body["metadata"]["name"] for body in objects}
    problems = [problem for body in objects for problem in _metadata_problems(body["metadata"])]
    for count, template in pod_templates(objects):
        problems += [f"{count} pods"] * (count < 1)
        problems += _pod_problems(template, names)
    for body in objects:
        if body["apiVersion"] == "ray.io/v1":
            problems += _operator_problems(body)
    return problems


def _operator_problems(body: dict[str, Any]) -> Iterator[str]:
    if len(body["metadata"]["name"]) > _LONGEST_NAME[body["kind"]]:
        yield f"the name {body['metadata']['name']} is too long"
    cluster = body["spec"].get("rayClusterSpec", body["spec"])
    for group in (cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", ())):
        template = group["template"]
        if template["metadata"]["labels"].get("app.kubernetes.io/name", "kuberay") != "kuberay":
            yield "the service of the head selects its pod by app.kubernetes.io/name"
        container = template["spec"]["containers"][0]
        if "command" in container:
            yield "a command would run before Ray and have to end"
        if not {"livenessProbe", "readinessProbe"} <= container.keys():
            yield "the operator's own probes may call wget, which the image need not have"
        if group.get("replicas") != group.get("minReplicas") or group.get("replicas") != group.get("maxReplicas"):
            yield "a run has as many nodes as its layout, always"


def _metadata_problems(metadata: dict[str, Any]) -> Iterator[str]:
    yield from (f"{key} {metadata[key]!r}" for key in ("name", "namespace") if not _LABEL.fullmatch(metadata[key]))
    for key, value in metadata.get("labels", {}).items():
        if not _KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            yield f"label {key}={value!r}"


def _pod_problems(template: dict[str, Any], names: set[str]) -> Iterator[str]:
    spec = template["spec"]
    if spec["restartPolicy"] != "Never":
        yield f"restartPolicy {spec['restartPolicy']}: a measured run is not repeated"
    for volume in spec["volumes"]:
        if "configMap" in volume and volume["configMap"]["name"] not in names:
            yield f"volume of an unknown config map {volume}"
    for container in spec["containers"]:
        yield from _container_problems(container)


def _container_problems(container: dict[str, Any]) -> Iterator[str]:
    security = container["securityContext"]
    if security["privileged"] or security["allowPrivilegeEscalation"] or not security["readOnlyRootFilesystem"]:
        yield f"security {security}"
    if security["capabilities"]["drop"] != ["ALL"]:
        yield f"capabilities {security['capabilities']}"
