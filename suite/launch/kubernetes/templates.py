"""The pods that rendered objects make."""

from __future__ import annotations

from typing import Any


def pod_templates(objects: list[dict[str, Any]]) -> list[tuple[str, int, dict[str, Any]]]:
    """The kinds of pods of a run: role, how many, template."""
    by_kind = {one["kind"]: one for one in objects}
    if "TrainJob" in by_kind:
        return [_of_job(by_kind["TrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"])]
    if "JobSet" in by_kind:
        return [_of_job(by_kind["JobSet"]["spec"]["replicatedJobs"][0]["template"])]
    if "PyTorchJob" in by_kind:
        return _of_replicas(by_kind["PyTorchJob"]["spec"]["pytorchReplicaSpecs"])
    if "MPIJob" in by_kind:
        return _of_replicas(by_kind["MPIJob"]["spec"]["mpiReplicaSpecs"])
    if "RayJob" in by_kind:
        spec = by_kind["RayJob"]["spec"]
        return [*_of_ray_cluster(spec["rayClusterSpec"]), ("Launcher", 1, spec["submitterPodTemplate"])]
    job = by_kind["Job"]
    if "RayCluster" in by_kind:
        return [*_of_ray_cluster(by_kind["RayCluster"]["spec"]), ("Launcher", 1, job["spec"]["template"])]
    if job["apiVersion"].startswith("batch.volcano.sh"):
        task = job["spec"]["tasks"][0]
        return [(task["name"], task["replicas"], task["template"])]
    return [_of_job(job)]


def _of_job(template: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    spec = template["spec"]
    return "node", spec["completions"], spec["template"]


def _of_ray_cluster(spec: dict[str, Any]) -> list[tuple[str, int, dict[str, Any]]]:
    groups = [(group["groupName"], group["replicas"], group["template"]) for group in spec.get("workerGroupSpecs", ())]
    return [("head", 1, spec["headGroupSpec"]["template"]), *groups]


def _of_replicas(specs: dict[str, Any]) -> list[tuple[str, int, dict[str, Any]]]:
    return [(role, spec["replicas"], spec["template"]) for role, spec in specs.items()]
