"""What an API server answers, made safe to read: what is not of its kind is left out, so that nobody stumbles."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from suite.spec.base import UsageError

_TIME = str
_STATE = {
    "waiting": {"reason": str, "message": str},
    "terminated": {"reason": str, "message": str, "exitCode": int, "startedAt": _TIME, "finishedAt": _TIME},
    "running": {},
}
_STATUSES = [{"name": str, "state": _STATE, "lastState": _STATE}]
_CONDITIONS = [{"type": str, "status": str, "reason": str, "message": str}]
_TEXTS = {"*": str}
#: The parts of objects that are read here; others stay as they are.
_METADATA = {
    "name": str,
    "creationTimestamp": _TIME,
    "deletionTimestamp": _TIME,
    "deletionGracePeriodSeconds": int,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "ownerReferences": [{"kind": str}],
}
_POD = {
    "metadata": _METADATA,
    "spec": {"nodeName": str, "containers": [{"name": str}]},
    "status": {
        "phase": str,
        "reason": str,
        "message": str,
        "conditions": _CONDITIONS,
        "containerStatuses": _STATUSES,
        "initContainerStatuses": _STATUSES,
    },
}
_RUN = {
    "kind": str,
    "metadata": _METADATA,
    "spec": {"runPolicy": {}},
    "status": {
        "conditions": _CONDITIONS,
        "reason": str,
        "message": str,
        "jobDeploymentStatus": str,
        "jobStatus": str,
    },
}


def pod_answer(body: Any) -> dict[str, Any]:
    """A pod's JSON. Raises UsageError for what is no pod: without a name, or without a container that has one."""
    found = _tidy(body, _POD)
    containers = found.get("spec", {}).get("containers", ())
    if "name" not in found.get("metadata", {}) or not containers or "name" not in containers[0]:
        raise UsageError("the cluster's answer about the pods of the run holds what is no pod")
    return found


def run_answer(body: Any) -> dict[str, Any]:
    """The JSON of a Job, JobSet ... Raises UsageError for what has no kind."""
    found = _tidy(body, _RUN)
    if "kind" not in found:
        raise UsageError("the cluster's answer about the run is no object of a kind")
    return found


def moment(text: str | None) -> float | None:
    """Unix seconds of a time as the API writes it; null for what is none."""
    try:
        return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def readable(text: str) -> str:
    """Without halves of characters, which JSON can spell and no file can hold."""
    return text.encode(errors="replace").decode()


def _tidy(value: Any, kind: Any) -> Any:
    """``value`` without those parts that are not of their kind."""
    if isinstance(kind, list):
        return [_tidy(one, kind[0]) for one in value if isinstance(one, dict)]
    if not isinstance(value, dict):
        return {}
    kinds = {name: kind.get(name, kind.get("*")) for name in value}
    return {name: _tidied(inner, kinds[name]) for name, inner in value.items() if _fits(inner, kinds[name])}


def _tidied(value: Any, kind: Any) -> Any:
    if isinstance(kind, (dict, list)):
        return _tidy(value, kind)
    return readable(value) if isinstance(value, str) else value


def _fits(value: Any, kind: Any) -> bool:
    if kind is None:
        return True
    wanted = type(kind) if isinstance(kind, (dict, list)) else kind
    return isinstance(value, wanted) and not (kind is int and isinstance(value, bool))
