"""Handing a run's objects to a cluster: all of them or none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from suite.launch.kubernetes.client import Cluster, Refused, kind_of
from suite.launch.kubernetes.names import quantity_number
from suite.launch.kubernetes.templates import pod_templates
from suite.spec.base import UsageError


def hand_over(cluster: Cluster, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Create the objects, the run itself last and owner of the others; gives the run as the server made it.

    Raises UsageError where the server refuses one of them; then, as after Ctrl-C, nothing is left behind.
    """
    placed = [{**body, "metadata": {**body["metadata"], "namespace": cluster.namespace}} for body in objects]
    rehearse(cluster, placed)
    created: list[tuple[str, str]] = []
    try:
        for body in placed:
            created.append((kind_of(body), body["metadata"]["name"]))
            run = cluster.create(body)
        owner = {
            "apiVersion": placed[-1]["apiVersion"],
            "kind": placed[-1]["kind"],
            "name": run["metadata"]["name"],
            "uid": run["metadata"]["uid"],
        }
        for kind, name in created[:-1]:
            cluster.patch(kind, name, {"metadata": {"ownerReferences": [owner]}})
    except BaseException as error:
        there_before = isinstance(error, Refused) and error.status == 409
        take_back(cluster, created[:-1] if there_before else created)
        raise
    return run


def take_back(cluster: Cluster, created: Iterable[tuple[str, str]]) -> None:
    """Delete what was created, the run itself first."""
    for kind, name in reversed(list(created)):
        with suppress(UsageError):
            cluster.delete(kind, name)


def rehearse(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    """Have the server check everything without making anything: the objects, a pod of each kind, and the quota of all.

    A controller makes the pods later and would be refused where nobody looks. Raises UsageError.
    """
    for body in objects:
        cluster.create(body, dry_run=True)
    total: dict[str, float] = {}
    for role, count, template in pod_templates(objects):
        _rehearse_pod(cluster, role, template)
        for name, value in _requests(template).items():
            total[name] = total.get(name, 0.0) + count * value
        total["pods"] = total.get("pods", 0.0) + count
    _check_quota(cluster, total)


def _rehearse_pod(cluster: Cluster, role: str, template: dict[str, Any]) -> None:
    metadata = {**template["metadata"], "generateName": f"suite-{role.lower()}-"}
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
