"""What a cluster reports of a run's pods and of the run itself, and why the run ended by that, read from JSON which may
hold anything: what is not of its kind counts as not there. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from suite.launch.classify import PATTERNS, strongest
from suite.launch.cluster.launcher import SchedulerEnd
from suite.launch.kubernetes.pod import ROLE_LABEL
from suite.launch.outcome import EndStatus, Failure, FailureKind
from suite.launch.processes import signed
from suite.spec.base import UsageError

#: annotation or label in which a scheduler writes the number of a pod among its own kind
_NUMBERS = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-index", "volcano.sh/task-index")
_REPLICA_TYPE = "training.kubeflow.org/replica-type"
_NUMBER = re.compile(r"\d{1,9}")
#: what containerd says of a container that ended while it was away, and a kubelet of one that it no longer finds
_UNSEEN = ("Unknown", "ContainerStatusUnknown")
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
        return text(self.ended(), "reason") in _UNSEEN

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
    """How the run ended as its Job, JobSet ... says; ``None`` while it goes on, or where there is none (any more)."""
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
    known = {**part(body, "metadata", "labels"), **part(body, "metadata", "annotations")}
    numbers = [int(written) for written in (text(known, key) for key in _NUMBERS) if _NUMBER.fullmatch(written)]
    # the master of a PyTorchJob is node 0, its workers count from 0 behind it
    number = numbers[0] + (text(known, _REPLICA_TYPE) == "worker") if numbers else 0
    return Pod(name, role or "node", number, phase or "Unknown", body)


def sentence(reason: str, message: str) -> str:
    return f"{reason}: {' '.join(message.split())}" if message else reason


_PULL = re.compile(
    r"ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|RegistryUnavailable|ImageInspectError"
)
_CANNOT_START = re.compile(
    r"Create(Pod)?(Container|Sandbox)(Config)?Error|RunContainerError|StartError|ContainerCannotRun|CrashLoopBackOff"
)
_STORAGE = re.compile(r"ephemeral.storage|EmptyDir|nodefs|imagefs|inodes", re.IGNORECASE)
_LOST = re.compile(r"NodeLost|NodeShutdown|NodeAffinity|Shutdown|Terminated|Preempting")
#: a pull that no later try mends: at once, or after some tries; any other gets longer
_NEVER_PULLED = re.compile(r"InvalidImageName|ErrImageNeverPull")
_NOT_TO_BE_HAD = re.compile(
    r"not found|manifest unknown|does not exist|no match for platform|unauthorized|authentication required|denied"
    r"|forbidden",
    re.IGNORECASE,
)
_SOME_TRIES_SECONDS, _PULL_SECONDS = 60.0, 900.0
_GPU = re.compile(r"Insufficient \S{0,200}gpu|OutOf\S{0,200}gpu|for \S{0,200}gpu", re.IGNORECASE)
#: KubeRay's pods: their exit codes are Ray's and those of the program that follows its job, not those of ranks
_NOT_OF_RANKS = ("ray", "submitter")
#: findings up to this strength explain the end whatever the ranks say of it
_PROVEN = 3


class Finding(NamedTuple):
    """One thing that explains the end; the lower the strength, the better it does."""

    strength: int
    kind: FailureKind
    text: str


def scheduler_end(
    pods: list[Pod], end: RunEnd | None, nodes: int, warnings: Sequence[str] = (), cancelled: bool = False
) -> SchedulerEnd:
    """What the cluster itself reports of a run that is over. ``end``: what the run's own object says, ``None`` where
    that is gone. ``nodes``: how many pods there should be. ``warnings``: of the cluster, as ``reason: message``."""
    findings = sorted(_findings(pods, end, nodes, warnings))
    is_done = len(pods) >= nodes and all(pod.phase == "Succeeded" for pod in pods)
    succeeded = end.succeeded if end is not None else is_done if pods else None
    status: EndStatus | None = None if succeeded is None else "ok" if succeeded else "failed"
    if status == "failed" and len(pods) >= nodes and all(pod.phase == "Succeeded" or pod.is_unseen for pod in pods):
        status = None  # their output tells: ranks that said that all is well have done their work
    verdict = None
    if cancelled:
        status, verdict = "interrupted", Failure(kind="interrupted", evidence=("the run was cancelled",))
    elif succeeded is False and findings:
        texts = tuple(dict.fromkeys(finding.text for finding in findings))
        verdict = Failure(kind=findings[0].kind, evidence=(*texts, *([end.message] if end else ())))
    codes = {
        pod.stream: integer(pod.ended(), "exitCode")
        for pod in pods
        if pod.role not in _NOT_OF_RANKS and not (pod.is_deleted or pod.is_unseen)
    }
    begun, ended = ([moment(text(pod.ended(), name)) for pod in pods] for name in ("startedAt", "finishedAt"))
    return SchedulerEnd(
        status=status,
        verdict=verdict,
        proven=status == "failed" and bool(findings) and findings[0].strength <= _PROVEN,
        exit_codes={stream: signed(code) for stream, code in codes.items() if code is not None},
        started=min((time for time in begun if time is not None), default=None),
        ended=max((time for time in ended if time is not None), default=None),
    )


def _findings(pods: list[Pod], end: RunEnd | None, nodes: int, warnings: Sequence[str]) -> Iterator[Finding]:
    for pod in pods:
        yield from _of_pod(pod)
    if end is not None and "DeadlineExceeded" in end.message:
        yield Finding(5, "timeout", end.message)
    elif end is not None and "ValidationFailed" in end.message:
        yield Finding(2, "config", end.message)
    elif end is not None and not end.succeeded and len(pods) < nodes:
        gone = sorted(set(range(nodes)) - {pod.number for pod in pods})
        yield Finding(6, "rank_lost", f"the pod of node {', '.join(map(str, gone))} is gone")
    # a controller deletes the others of a run of which a pod failed by itself
    if not any(pod.phase == "Failed" and not pod.is_deleted for pod in pods):
        for pod in pods:
            if pod.is_deleted and pod.phase != "Succeeded":
                yield Finding(6, "rank_lost", f"pod {pod.name} was deleted")
    # it may have deleted the pods that would say why none ever ran; of a run that began warnings are history
    for warning in () if any(pod.ended() for pod in pods) else warnings:
        if warning.startswith("FailedScheduling") and _GPU.search(warning):
            yield Finding(2, "gpu_unavailable", warning)
        elif warning.startswith("FailedCreate:"):
            yield Finding(2, "config", warning)
        elif _PULL.search(warning) or "Failed to pull image" in warning:
            yield Finding(1, "image_pull", warning)


def _of_pod(pod: Pod) -> Iterator[Finding]:
    name, reason, message = f"pod {pod.name}", text(pod.body, "status", "reason"), text(pod.body, "status", "message")
    line = f"{name}: {sentence(reason, message)}"
    for one in pod.statuses:
        yield from _of_container(name, one)
    if reason == "Evicted":
        by_memory = "memory" in message and not _STORAGE.search(message)
        kind: FailureKind = "disk_full" if _STORAGE.search(message) else "oom_host" if by_memory else "rank_lost"
        yield Finding(1, kind, line)
    elif reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        yield Finding(2, "gpu_unavailable" if _GPU.search(f"{reason} {message}") else "config", line)
    elif reason == "DeadlineExceeded":
        yield Finding(5, "timeout", line)
    elif _LOST.search(reason):
        yield Finding(3, "rank_lost", line)
    for condition in parts(pod.body, "status", "conditions"):
        if text(condition, "type") == "DisruptionTarget" and text(condition, "status") == "True":
            words = sentence(text(condition, "reason") or "disrupted", text(condition, "message"))
            yield Finding(3, "rank_lost", f"{name}: {words}")
    waiting = pod.why_pending() if pod.phase == "Pending" else ""
    if waiting and "Unschedulable" in waiting:
        yield Finding(4, "gpu_unavailable" if _GPU.search(waiting) else "timeout", f"{name} waited: {waiting}")


def _of_container(pod: str, status: dict[str, Any]) -> Iterator[Finding]:
    ended = part(status, "state", "terminated") or part(status, "lastState", "terminated")
    container = f"{pod}: container {text(status, 'name')} ended"
    if text(ended, "reason") == "OOMKilled":
        yield Finding(0, "oom_host", f"{container} with OOMKilled, exit code {integer(ended, 'exitCode')}")
    if text(ended, "reason") in _UNSEEN:
        yield Finding(5, "rank_lost", f"{container} while its runtime was away ({text(ended, 'reason')})")
    for one in (part(status, "state", "waiting"), ended):
        reason, message = text(one, "reason"), text(one, "message")
        line = f"{pod}: {sentence(reason, message)}"
        if _PULL.search(reason):
            yield Finding(1, "image_pull", line)
        elif _CANNOT_START.search(reason):
            known = strongest([" ".join(message.split())], PATTERNS, started=False)
            yield Finding(1, known[0].kind if known else "config", line)


def hopeless(pods: Sequence[Pod], now: float, warnings: Sequence[str] = ()) -> str | None:
    """Why a run that is not over can never end well: an image that cannot be had. ``None`` while it may. ``now``: Unix
    seconds. ``warnings``: as above; between two tries a pod itself does not say why the last one failed."""
    for pod in pods:
        started = moment(text(pod.body, "status", "startTime"))
        waited = 0.0 if started is None else now - started
        tried = f'Failed to pull image "{text(parts(pod.body, "spec", "containers")[0], "image")}"'
        for status in pod.statuses:
            reason, message = (text(status, "state", "waiting", word) for word in ("reason", "message"))
            told = [message, *(warning for warning in warnings if tried in warning)]
            patience = _SOME_TRIES_SECONDS if any(map(_NOT_TO_BE_HAD.search, told)) else _PULL_SECONDS
            if _NEVER_PULLED.search(reason) or (_PULL.search(reason) and waited > patience):
                return f"pod {pod.name} has no image: {sentence(reason, message)}"
    return None
