"""What the schemas of Kubernetes and Kubeflow say, and what they let pass although no cluster takes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from suite.launch.kubernetes.names import quantity_number
from suite.launch.kubernetes.read_back import pod_templates
from tests.launch.kubernetes import kuberay

SCHEMA_VERSIONS = ("1.28", "1.37")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VOLUME_KINDS = {"configMap", "emptyDir", "persistentVolumeClaim"}
_JOB_FIELDS = {
    *("completionMode", "completions", "parallelism", "activeDeadlineSeconds", "backoffLimit", "podFailurePolicy"),
    *("ttlSecondsAfterFinished", "template"),
}
_VOLCANO_FIELDS = {
    *("schedulerName", "minAvailable", "ttlSecondsAfterFinished", "queue", "priorityClassName", "plugins"),
    *("policies", "tasks"),
}
#: what the templates may say in the place of KubeRay's plain types
_RAY_PLAIN = {"str": str, "int": int, "bool": bool}
#: names longer than these are refused by KubeRay's operator, which appends to them
_LONGEST_NAME = {"RayJob": 47, "RayCluster": 53}
_VOLCANO_EVENTS = {"PodFailed", "PodEvicted", "TaskCompleted"}
_VOLCANO_ACTIONS = {"AbortJob", "CompleteJob"}


def schema_problems(body: dict[str, Any]) -> list[str]:
    """What the schema of the object's kind says against it; unknown fields are problems."""
    if body["apiVersion"] in ("v1", "batch/v1"):
        return _kubernetes_problems(body)
    if body["apiVersion"] in ("jobset.x-k8s.io/v1alpha2", "trainer.kubeflow.org/v1alpha1"):
        return _trainer_problems(body)
    if body["apiVersion"] == "kubeflow.org/v1":
        return _training_problems(body)
    if body["apiVersion"] == "ray.io/v1":
        return _ray_problems(body)
    assert body["apiVersion"] == "batch.volcano.sh/v1alpha1", body["apiVersion"]
    return _volcano_problems(body)


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

    try:
        # the models of Kubeflow lean on those of Kubernetes, where the client looks for both
        with _known_to_the_client(vars(models)):
            client = kubernetes.client.ApiClient()
            understood = client.sanitize_for_serialization(client.deserialize(Answer, f"KubeflowOrgV1{body['kind']}"))
    except ValueError as error:
        return [str(error)]
    return _differences(body, understood)


@contextmanager
def _known_to_the_client(models: Mapping[str, Any]) -> Iterator[None]:
    from kubernetes.client import models as known

    added = {name: model for name, model in models.items() if name.startswith("KubeflowOrg")}
    vars(known).update(added)
    try:
        yield
    finally:
        for name in added:
            delattr(known, name)


def _volcano_problems(body: dict[str, Any]) -> list[str]:
    """Volcano publishes no model for Python; these are the fields and words of its API that the template may use."""
    spec = body["spec"]
    problems = [f"unknown field {name}" for name in sorted(set(spec) - _VOLCANO_FIELDS)]
    for policy in spec["policies"]:
        if policy["event"] not in _VOLCANO_EVENTS or policy["action"] not in _VOLCANO_ACTIONS:
            problems.append(f"unknown policy {policy}")
    for task in spec["tasks"]:
        problems += [f"unknown field {name} of a task" for name in sorted(set(task) - {"name", "replicas", "template"})]
        pod = {"apiVersion": "v1", "kind": "Pod", **task["template"]}
        problems += _kubernetes_problems({**pod, "metadata": {**pod["metadata"], "name": "pod"}})
    return problems


def _ray_problems(body: dict[str, Any]) -> list[str]:
    """By the fields of KubeRay's API that the templates may use."""
    spec = body["spec"]
    problems = list(_typed_problems(kuberay.SPECIFICATIONS[body["kind"]], spec, body["kind"]))
    if body["kind"] == "RayJob" and spec.get("submissionMode") != "K8sJobMode":
        problems.append("another way to submit")
    return problems


def _typed_problems(kind: str, found: Any, place: str) -> Iterator[str]:
    """``found`` held to a type of KubeRay's API; unknown fields are problems."""
    if kind in kuberay.TYPES:
        known = kuberay.TYPES[kind]
        yield from (f"{place}: unknown field {name}" for name in sorted(found.keys() - known.openapi_types.keys()))
        yield from (f"{place}: no {name}" for name in sorted(set(known.required) - found.keys()))
        for name, value in found.items():
            if name in known.openapi_types:
                yield from _typed_problems(known.openapi_types[name], value, f"{place}.{name}")
    elif kind == kuberay.POD:
        pod = {"apiVersion": "v1", "kind": "Pod", **found}
        yield from _kubernetes_problems({**pod, "metadata": {**pod["metadata"], "name": "pod"}})
    elif kind.startswith("list["):
        for number, each in enumerate(found):
            yield from _typed_problems(kind[len("list[") : -1], each, f"{place}[{number}]")
    elif kind == "dict(str, str)":
        yield from (f"{place}: {name} is {value!r}" for name, value in found.items() if type(value) is not str)
    elif type(found) is not _RAY_PLAIN[kind]:
        yield f"{place}: {found!r}"


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
    """What an API server or a controller would say although a schema is content."""
    problems = [problem for body in objects for problem in _metadata_problems(body["metadata"])]
    names = {(body["apiVersion"], body["kind"], body["metadata"]["name"]) for body in objects}
    if len(names) != len(objects):
        problems.append("two objects of one name")
    templates = pod_templates(objects)
    for _, count, template in templates:
        if count < 1:
            problems.append(f"{count} pods")
        problems += _pod_problems(template, {body["metadata"]["name"] for body in objects})
    for spec in _job_specs(objects):
        problems += _job_problems(spec)
    for body in objects:
        if body["apiVersion"] == "ray.io/v1":
            problems += _operator_problems(body)
    return problems


def _operator_problems(body: dict[str, Any]) -> Iterator[str]:
    """What KubeRay's operator refuses or trips over."""
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
    for key in ("name", "namespace"):
        if not _LABEL.fullmatch(metadata[key]):
            yield f"{key} {metadata[key]!r}"
    yield from _mapping_problems(metadata)
    if sum(len(key) + len(value) for key, value in metadata.get("annotations", {}).items()) > 256 << 10:
        yield "more than 256 KiB of annotations"


def _mapping_problems(metadata: dict[str, Any]) -> Iterator[str]:
    for key, value in metadata.get("labels", {}).items():
        if not _KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            yield f"label {key}={value!r}"
    for key, value in metadata.get("annotations", {}).items():
        if not _KEY.fullmatch(key) or not isinstance(value, str):
            yield f"annotation {key}={value!r}"


def _pod_problems(template: dict[str, Any], names: set[str]) -> Iterator[str]:
    spec = template["spec"]
    yield from _mapping_problems(template["metadata"])
    if spec["restartPolicy"] != "Never":
        yield f"restartPolicy {spec['restartPolicy']}"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for volume in spec["volumes"]:
        kinds = set(volume) - {"name"}
        if len(kinds) != 1 or not kinds <= _VOLUME_KINDS:
            yield f"volume {volume}"
        if "configMap" in volume and volume["configMap"]["name"] not in names:
            yield f"volume of an unknown config map {volume}"
        size = volume.get("emptyDir", {}).get("sizeLimit")
        if size is not None and quantity_number(size) <= 0:
            yield f"volume of size {size}"
    for container in spec["containers"]:
        yield from _container_problems(container, volumes)


def _container_problems(container: dict[str, Any], volumes: dict[str, Any]) -> Iterator[str]:
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    if len(set(paths)) != len(paths) or any(":" in path or not path.startswith("/") for path in paths):
        yield f"mounts at {paths}"
    for mount in container["volumeMounts"]:
        if mount["name"] not in volumes:
            yield f"mount of an unknown volume {mount['name']}"
        if mount.get("subPath", "").startswith("/") or ".." in mount.get("subPath", ""):
            yield f"subPath {mount['subPath']}"
    if container["imagePullPolicy"] not in ("IfNotPresent", "Always", "Never"):
        yield f"imagePullPolicy {container['imagePullPolicy']}"
    security = container["securityContext"]
    if security["privileged"] or security["allowPrivilegeEscalation"] or not security["readOnlyRootFilesystem"]:
        yield f"security {security}"
    if security["capabilities"]["drop"] != ["ALL"]:
        yield f"capabilities {security['capabilities']}"
    if any(not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", entry["name"]) for entry in container.get("env", ())):
        yield "a variable's name"
    asked = container.get("resources", {"requests": {}, "limits": {}})
    for name, value in asked["limits"].items():
        number = quantity_number(str(value))
        if number <= 0:
            yield f"{name}: {value}"
        is_device = "/" in name  # whole ones, and as many asked for as allowed
        if is_device and (number != Fraction(int(number)) or asked["requests"].get(name) != value):
            yield f"{name}: limit {value}, request {asked['requests'].get(name)}"


def _job_specs(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for body in objects:
        spec = body.get("spec", {})
        if body["apiVersion"] == "batch/v1" and objects[1]["kind"] != "RayCluster":  # whose Job is no node's
            yield spec
        for replicated in spec.get("replicatedJobs", ()) or spec.get("template", {}).get("spec", {}).get(
            "replicatedJobs", ()
        ):
            yield replicated["template"]["spec"]


def _job_problems(spec: dict[str, Any]) -> Iterator[str]:
    yield from (f"unknown field {name} of a Job" for name in sorted(set(spec) - _JOB_FIELDS))
    if spec["completionMode"] != "Indexed" or not spec["completions"] == spec["parallelism"] > 0:
        yield "an Indexed Job has as many pods as completions"
    if spec["backoffLimit"] != 0:
        yield "a measured run is not repeated"
    containers = {container["name"] for container in spec["template"]["spec"]["containers"]}
    for rule in spec["podFailurePolicy"]["rules"]:
        if rule["action"] not in ("FailJob", "Ignore", "Count", "FailIndex"):
            yield f"podFailurePolicy {rule}"
        if "onExitCodes" in rule and rule["onExitCodes"]["containerName"] not in containers:
            yield f"podFailurePolicy names no container: {rule}"
