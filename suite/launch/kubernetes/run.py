"""A run on Kubernetes: the YAML of its objects, and handing them over, all of them or none."""

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from suite.launch.cluster.render import render_yaml
from suite.launch.cluster.submission import FOLDER, Submission
from suite.launch.job import Job
from suite.launch.kubernetes.client import Cluster, Refused, kind_of
from suite.launch.kubernetes.pod import MANIFEST, pod_values, reader_values
from suite.launch.kubernetes.settings import KubernetesSettings, quantity_number
from suite.spec.base import UsageError
from suite.spec.version import suite_version

#: Of a ConfigMap's values together; an API server refuses more.
_MOST_BYTES = 1 << 20


def render(job: Job, settings: KubernetesSettings, files: Mapping[str, str], about: Mapping[str, str]) -> str:
    """The YAML documents of a run, in the order in which a cluster should get them.

    ``files``: text files that the objects carry, the manifest among them. ``about``: annotations. Raises UsageError
    where the job cannot be what the settings ask for.
    """
    carried = sum(len(text.encode(errors="replace")) for text in files.values())
    if carried > _MOST_BYTES:
        raise UsageError(
            f"{job.name}: its manifest has {carried} bytes, and the ConfigMap that would carry it takes {_MOST_BYTES}: "
            "take fewer nodes or rollouts, or lengths that are not drawn; Slurm carries such runs"
        )
    return render_yaml(f"kubernetes/{settings.variant}.yaml.j2", **pod_values(job, settings, about), files=dict(files))


def render_reader(job: Job, settings: KubernetesSettings) -> dict[str, Any]:
    """The pod that prints what a run left on its claim."""
    return parse(render_yaml("kubernetes/reader.yaml.j2", **reader_values(job, settings)))[0]


def parse(text: str) -> list[dict[str, Any]]:
    """The objects of a rendered text."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def about_run(submission: Submission, settings: KubernetesSettings) -> dict[str, str]:
    """What the objects say of the run to whoever finds them in the cluster."""
    manifest, layout = submission.manifest, submission.manifest.layout
    device = settings.gpu_resource if manifest.measure.device == "cuda" else "CPU ranks"
    return {
        "suite/run-id": manifest.run.id,
        "suite/plan": manifest.run.plan,
        "suite/manifest-hash": manifest.hash,
        "suite/work-hash": manifest.work_hash,
        "suite/version": suite_version(),
        "suite/backend": manifest.backend.name,
        "suite/size": manifest.size.name,
        "suite/layout": layout.label(),
        "suite/hardware": f"{layout.nodes} nodes x {layout.devices_per_node} {device}, {manifest.measure.precision}",
        "suite/stack": ", ".join(f"{package} {version}" for package, version in manifest.stack.items()),
    }


def render_run(submission: Submission, settings: KubernetesSettings) -> str:
    """The YAML of a run, with its manifest for the ranks. Raises UsageError where its job cannot be what the settings
    ask for."""
    files = {MANIFEST: submission.manifest.model_dump_json(by_alias=True) + "\n"}
    return render(submission.job, settings, files, about_run(submission, settings))


def spool_path(root: Path, run_id: str) -> Path:
    """Where the last output of a cancelled run is kept; no submission's name."""
    return root / FOLDER / f"{run_id}.kept"


def hand_over(cluster: Cluster, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Create the objects, the run itself last and owner of the others; gives the run as the server made it.

    Raises UsageError where the server refuses one of them; then, as after Ctrl-C, nothing is left behind.
    """
    rehearse(cluster, objects)
    created: list[tuple[str, str]] = []
    try:
        for body in objects:
            created.append((kind_of(body), body["metadata"]["name"]))
            run = cluster.create(body)
        owner = {name: objects[-1][name] for name in ("apiVersion", "kind")}
        owner |= {name: run["metadata"][name] for name in ("name", "uid")}
        for kind, name in created[:-1]:
            cluster.patch(kind, name, {"metadata": {"ownerReferences": [owner]}})
    except BaseException as error:
        there_before = isinstance(error, Refused) and error.status == 409
        for kind, name in reversed(created[:-1] if there_before else created):
            with suppress(UsageError):
                cluster.delete(kind, name)
        raise
    return run


def rehearse(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    """Have the server check everything without making anything: the objects, a pod of each kind, and the quota of all.

    A controller makes the pods later and would be refused where nobody looks. Raises UsageError.
    """
    for body in objects:
        cluster.create(body, dry_run=True)
    total: dict[str, float] = {}
    for count, template in pod_templates(objects):
        _rehearse_pod(cluster, template)
        for name, value in _requests(template).items():
            total[name] = total.get(name, 0.0) + count * value
        total["pods"] = total.get("pods", 0.0) + count
    _check_quota(cluster, total)


def _rehearse_pod(cluster: Cluster, template: dict[str, Any]) -> None:
    metadata = {**template["metadata"], "generateName": "suite-"}
    try:
        cluster.create({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}, dry_run=True)
    except Refused as error:
        # a user who may not create pods may still create the Job, whose controller does
        if not (error.status == 403 and 'cannot create resource "pods"' in error.message):
            raise


def _requests(template: dict[str, Any]) -> dict[str, float]:
    """What a pod counts for, under the names that a quota uses."""
    asked: dict[str, float] = {}
    for container in template["spec"]["containers"]:
        resources = container.get("resources", {})
        for kind, prefix in (("requests", "requests."), ("limits", "limits.")):
            for name, value in resources.get(kind, {}).items():
                key = f"{prefix}{name}"
                asked[key] = asked.get(key, 0.0) + float(quantity_number(str(value)))
    return {**asked, **{name: asked[f"requests.{name}"] for name in ("cpu", "memory") if f"requests.{name}" in asked}}


def _check_quota(cluster: Cluster, total: dict[str, float]) -> None:
    """Hold all pods together against what is left of each quota; where quotas may not be read, nothing is known."""
    try:
        quotas = cluster.find("ResourceQuota")
    except Refused:
        return
    for quota in quotas:
        status = quota.get("status", {})
        for name, limit in status.get("hard", {}).items():
            left = quantity_number(str(limit)) - quantity_number(str(status.get("used", {}).get(name, "0")))
            if name in total and total[name] > left and not quota["spec"].get("scopes"):
                raise UsageError(
                    f"the quota {quota['metadata']['name']} of namespace {cluster.namespace} leaves "
                    f"{math.floor(left)} of {name}; the run needs {math.ceil(total[name])}"
                )


def pod_templates(body: Any, count: int = 1) -> list[tuple[int, dict[str, Any]]]:
    """The templates of pods in an object or in several, and how many pods each is of."""
    if isinstance(body, list):
        return [found for each in body for found in pod_templates(each)]
    if not isinstance(body, dict):
        return []
    if "containers" in body.get("spec", {}):
        return [(count, body)]
    own_count = body.get("completions") or body.get("replicas") or 1
    return [found for part in body.values() for found in pod_templates(part, own_count)]
