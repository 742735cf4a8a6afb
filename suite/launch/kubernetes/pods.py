"""What a cluster reports of a run's pods and of the run itself, read from their JSON, which may hold anything: what is
not of its kind counts as not there. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from suite.launch.kubernetes.pod import ROLE_LABEL
from suite.spec.base import UsageError

#: annotation or label in which a scheduler writes the number of a pod among its own kind
_NUMBERS = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
)
_REPLICA_TYPE = "training.kubeflow.org/replica-type"
#: of the number of a pod
_MOST_DIGITS = 9
#: what containerd says of a container that ended while it was away, and a kubelet of one that it no longer finds
UNSEEN = ("Unknown", "ContainerStatusUnknown")
#: conditions by which the objects of the variants say that a run is over
_DONE = {"Complete": True, "Completed": True, "Succeeded": True, "Failed": False}
_VOLCANO_ENDS = ("Completed", "Failed", "Aborted", "Terminated")
#: of a RayJob's deployment, after which nothing more happens
_RAYJOB_ENDS = ("Complete", "Failed", "ValidationFailed")


def _at(body: Any, path: Iterable[str]) -> Any:
    for name in path:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def text(body: Any, *path: str) -> str:
    """The text in that place; empty where there is none."""
    found = _at(body, path)
    return readable(found) if isinstance(found, str) else ""


def integer(body: Any, *path: str) -> int | None:
    found = _at(body, path)
    return found if type(found) is int else None


def part(body: Any, *path: str) -> dict[str, Any]:
    found = _at(body, path)
    return found if isinstance(found, dict) else {}


def parts(body: Any, *path: str) -> list[dict[str, Any]]:
    found = _at(body, path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def moment(written: str) -> float | None:
    """Unix seconds of a time as the API writes it; null for what is none."""
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        return None


def readable(told: str) -> str:
    """Without halves of characters, which JSON can spell and no file can hold."""
    return told.encode(errors="replace").decode()


class Pod(NamedTuple):
    """One pod as the API server last saw it."""

    name: str
    role: str  # node or reader; with KubeRay ray and submitter
    number: int  # of the node, from 0
    phase: str  # Pending, Running, Succeeded, Failed, Unknown
    body: dict[str, Any]

    @property
    def stream(self) -> str:
        """Name of its log in a bundle."""
        if self.role == "ray":
            return self.name  # KubeRay numbers none
        return f"node-{self.number}" if self.role == "node" else self.role

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def container(self) -> str:
        return text(parts(self.body, "spec", "containers")[0], "name")

    @property
    def is_deleted(self) -> bool:
        """Whether somebody told it to end before it had ended: how its processes end is an answer to that."""
        last = moment(text(self.body, "metadata", "deletionTimestamp"))
        finished = moment(text(self.ended(), "finishedAt"))
        if last is None or finished is None:
            return last is not None
        return finished >= last - (integer(self.body, "metadata", "deletionGracePeriodSeconds") or 0)

    @property
    def is_unseen(self) -> bool:
        """Whether its exit code is a word for one that nobody knows."""
        return text(self.ended(), "reason") in UNSEEN

    @property
    def statuses(self) -> list[dict[str, Any]]:
        """The status of its containers, init containers among them."""
        return parts(self.body, "status", "initContainerStatuses") + parts(self.body, "status", "containerStatuses")

    def ended(self) -> dict[str, Any]:
        """How its own container ended: reason, exitCode, startedAt, finishedAt; empty while it runs."""
        ends = (part(status, "state", "terminated") for status in parts(self.body, "status", "containerStatuses"))
        return next(filter(None, ends), {})

    def why_pending(self) -> str:
        """What it waits for, in the cluster's words; empty where there is no reason."""
        for status in self.statuses:
            reason = text(status, "state", "waiting", "reason")
            if reason not in ("", "PodInitializing", "ContainerCreating"):
                return sentence(reason, text(status, "state", "waiting", "message"))
        for condition in parts(self.body, "status", "conditions"):
            if text(condition, "type") == "PodScheduled" and text(condition, "status") == "False":
                return sentence(text(condition, "reason") or "not scheduled", text(condition, "message"))
        return ""


class RunEnd(NamedTuple):
    """What the scheduler's own object says of the run's end."""

    succeeded: bool
    message: str


def read_pods(bodies: Iterable[Any]) -> list[Pod]:
    """The pods of the run itself, without one that reads its claim, in the order of their nodes. Raises UsageError."""
    pods = [pod for pod in map(read_pod, bodies) if pod.role != "reader"]
    return sorted(pods, key=lambda pod: (pod.role, pod.number, text(pod.body, "metadata", "creationTimestamp")))


def run_end(run: Any) -> RunEnd | None:
    """How the run ended as its Job, JobSet ... says; ``None`` while it goes on, or where there is no such object (any
    more)."""
    kind = text(run, "kind")
    for condition in parts(run, "status", "conditions"):
        word = text(condition, "type")
        if word in _DONE and text(condition, "status") == "True":
            words = ", ".join(filter(None, (word, text(condition, "reason"))))
            return RunEnd(_DONE[word], f"{kind}: {sentence(words, text(condition, 'message'))}")
    word, job = text(run, "status", "jobDeploymentStatus"), text(run, "status", "jobStatus") or "no status"
    if word in _RAYJOB_ENDS:  # Complete is also a job that somebody stopped; what Ray says of the job itself counts
        why = sentence(text(run, "status", "reason") or job, text(run, "status", "message"))
        return RunEnd(word == "Complete" and job == "SUCCEEDED", f"{kind}: {word}, {why}")
    phase = text(run, "status", "state", "phase")  # Volcano's
    if phase in _VOLCANO_ENDS:
        why = text(run, "status", "state", "message") or text(run, "status", "state", "reason")
        return RunEnd(phase == "Completed", f"{kind}: {sentence(phase, why)}")
    return None


def read_pod(body: Any) -> Pod:
    """Raises UsageError for what is no pod."""
    name, containers = text(body, "metadata", "name"), parts(body, "spec", "containers")
    if not name or not containers or not text(containers[0], "name"):
        raise UsageError("the cluster's answer about the pods of the run holds what is no pod")
    role, phase = text(body, "metadata", "labels", ROLE_LABEL), text(body, "status", "phase")
    return Pod(name, role or "node", _number(body), phase or "Unknown", body)


def _number(body: dict[str, Any]) -> int:
    known = {**part(body, "metadata", "labels"), **part(body, "metadata", "annotations")}
    for written in (text(known, key) for key in _NUMBERS):
        if written.isdecimal() and len(written) <= _MOST_DIGITS:
            # the master of a PyTorchJob is node 0, its workers count from 0 behind it
            return int(written) + (text(known, _REPLICA_TYPE) == "worker")
    return 0


def sentence(reason: str, message: str) -> str:
    return f"{reason}: {' '.join(message.split())}" if message else reason
