"""What a cluster reports of a run's pods and of the run itself, read from their JSON. Pure.

An answer is made safe to read first: what is not of its kind is left out, so that nobody stumbles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from suite.launch.kubernetes.pod import ROLE_LABEL
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


#: where a scheduler writes the number of a pod among its own kind
_NUMBERS = (
    ("annotations", "batch.kubernetes.io/job-completion-index"),
    ("labels", "batch.kubernetes.io/job-completion-index"),
    ("labels", "training.kubeflow.org/replica-index"),
    ("labels", "volcano.sh/task-index"),
    ("annotations", "volcano.sh/task-index"),
)
_REPLICA_TYPE = "training.kubeflow.org/replica-type"
#: of the number of a pod
_MOST_DIGITS = 9
_TERMINAL = ("Succeeded", "Failed")
#: conditions by which the objects of the variants say that a run is over
_DONE = {"Complete": True, "Completed": True, "Succeeded": True, "Failed": False}
#: of a RayJob's deployment, after which nothing more happens
_VOLCANO_ENDS = ["Completed", "Failed", "Aborted", "Terminated"]
_RAYJOB_ENDS = ("Complete", "Failed", "ValidationFailed")


class Pod(NamedTuple):
    """One pod as the API server last saw it."""

    name: str
    role: str  # node or reader; with KubeRay ray and submitter
    number: int  # of the node, from 0
    phase: str  # Pending, Running, Succeeded, Failed, Unknown
    node: str | None  # of the cluster, where it was placed
    body: dict[str, Any]

    @property
    def stream(self) -> str:
        """Name of its log in a bundle."""
        if self.role == "ray":
            return self.name  # KubeRay numbers none
        return f"node-{self.number}" if self.role == "node" else self.role

    @property
    def is_over(self) -> bool:
        return self.phase in _TERMINAL

    @property
    def container(self) -> str:
        return str(self.body["spec"]["containers"][0]["name"])

    @property
    def is_deleted(self) -> bool:
        """Whether somebody told it to end before it had ended: how its processes end is an answer to that."""
        metadata = self.body["metadata"]
        last = moment(metadata.get("deletionTimestamp"))
        finished = moment(self.ended().get("finishedAt"))
        if last is None or finished is None:
            return last is not None
        return finished >= last - metadata.get("deletionGracePeriodSeconds", 0)

    def statuses(self) -> Iterator[dict[str, Any]]:
        """The status of its containers, init containers among them."""
        status = self.body.get("status", {})
        yield from status.get("initContainerStatuses", ())
        yield from status.get("containerStatuses", ())

    def conditions(self) -> list[dict[str, Any]]:
        return list(self.body.get("status", {}).get("conditions", ()))

    def ended(self) -> dict[str, Any]:
        """How its own container ended: reason, exitCode, startedAt, finishedAt; empty while it runs."""
        for status in self.body.get("status", {}).get("containerStatuses", ()):
            ended = status.get("state", {}).get("terminated")
            if ended:
                return dict(ended)
        return {}

    def why_pending(self) -> str:
        """What it waits for, in the cluster's words; empty where there is no reason."""
        for status in self.statuses():
            waiting = status.get("state", {}).get("waiting") or {}
            if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
                return _sentence(waiting["reason"], waiting.get("message"))
        for condition in self.conditions():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return _sentence(condition.get("reason") or "not scheduled", condition.get("message"))
        return ""


class RunEnd(NamedTuple):
    """What the scheduler's own object says of the run's end."""

    succeeded: bool
    message: str


def read_pods(bodies: Iterable[dict[str, Any]]) -> list[Pod]:
    """The pods in the order of their nodes. Raises UsageError for what is no pod."""
    pods = [_pod(body) for body in bodies]
    return sorted(pods, key=lambda pod: (pod.role, pod.number, pod.body["metadata"].get("creationTimestamp") or ""))


def run_end(run: dict[str, Any]) -> RunEnd | None:
    """How the run ended as its Job, JobSet ... says; ``None`` while it goes on.

    Raises UsageError for no such object.
    """
    run = run_answer(run)
    status = run.get("status", {})
    for condition in status.get("conditions", ()):
        if condition.get("type") in _DONE and condition.get("status") == "True":
            words = _sentence(
                f"{condition['type']}, {condition.get('reason', '')}".strip(", "), condition.get("message")
            )
            return RunEnd(_DONE[condition["type"]], f"{run['kind']}: {words}")
    if run["kind"] == "RayJob":
        return _rayjob_end(status)
    state = status.get("state")  # Volcano's
    if isinstance(state, dict) and state.get("phase") in _VOLCANO_ENDS:
        words = _sentence(state["phase"], readable(str(state.get("message") or state.get("reason") or "")))
        return RunEnd(state["phase"] == "Completed", f"{run['kind']}: {words}")
    return None


def _rayjob_end(status: dict[str, Any]) -> RunEnd | None:
    """Complete is also a job that somebody stopped; what Ray says of the job itself counts."""
    word = status.get("jobDeploymentStatus")
    if word not in _RAYJOB_ENDS:
        return None
    job = status.get("jobStatus") or "no status"
    why = _sentence(status.get("reason") or job, status.get("message"))
    return RunEnd(word == "Complete" and job == "SUCCEEDED", f"RayJob: {word}, {why}")


def _pod(body: dict[str, Any]) -> Pod:
    body = pod_answer(body)
    metadata = body["metadata"]
    return Pod(
        name=metadata["name"],
        role=metadata.get("labels", {}).get(ROLE_LABEL, "node"),
        number=_number(metadata),
        phase=body.get("status", {}).get("phase", "Unknown"),
        node=body["spec"].get("nodeName"),
        body=body,
    )


def _number(metadata: dict[str, Any]) -> int:
    for field, key in _NUMBERS:
        text = metadata.get(field, {}).get(key)
        if text is not None and text.isdecimal() and len(text) <= _MOST_DIGITS:
            # the master of a PyTorchJob is node 0, its workers count from 0 behind it
            is_behind = metadata.get("labels", {}).get(_REPLICA_TYPE) == "worker"
            return int(text) + is_behind
    return 0


def _sentence(reason: str, message: str | None) -> str:
    return f"{reason}: {' '.join(message.split())}" if message else reason
