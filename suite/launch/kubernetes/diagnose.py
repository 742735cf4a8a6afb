"""Why a run ended as the cluster tells it: from the conditions of its pods and of the run's own object. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from suite.launch.classify import PATTERNS, strongest
from suite.launch.cluster.scheduler import SchedulerEnd
from suite.launch.kubernetes.pods import Pod, RunEnd, moment
from suite.launch.outcome import Failure, FailureKind

_PULL = re.compile(
    r"ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|RegistryUnavailable|ImageInspectError"
)
_CANNOT_START = re.compile(
    r"Create(Pod)?(Container|Sandbox)(Config)?Error|RunContainerError|StartError|ContainerCannotRun|CrashLoopBackOff"
)
#: what containerd says of a container that ended while it was away, and a kubelet of one that it no longer finds
_UNSEEN = ("Unknown", "ContainerStatusUnknown")
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
_SIGNAL_BASE, _MOST_SIGNAL = 128, 64
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
    """What the cluster itself reports of a run that is over.

    ``end``: what the run's own object says, ``None`` where that is gone. ``nodes``: how many pods there should be.
    ``warnings``: what the cluster complained of, as ``reason: message``.
    """
    own = [pod for pod in pods if pod.role != "reader"]
    findings = sorted(finding for pod in own for finding in _of_pod(pod))
    findings += [*_of_run(end, own, nodes), *_of_deleted(own)]
    if not any(pod.ended() for pod in own):
        findings = sorted([*findings, *_of_warnings(warnings)])
    is_done = len(own) >= nodes and all(pod.phase == "Succeeded" for pod in own)
    succeeded = end.succeeded if end is not None else is_done if own else None
    status: Literal["ok", "failed", "interrupted"] | None = None
    if succeeded is not None:
        status = "ok" if succeeded else "failed"
    if status == "failed" and len(own) >= nodes and all(pod.phase == "Succeeded" or _is_unseen(pod) for pod in own):
        status = None  # their output tells: ranks that said that all is well have done their work
    verdict = None
    if cancelled:
        status, verdict = "interrupted", Failure(kind="interrupted", evidence=("the run was cancelled",))
    elif succeeded is False and findings:
        texts = tuple(dict.fromkeys(finding.text for finding in findings))
        verdict = Failure(kind=findings[0].kind, evidence=(*texts, *([end.message] if end else ())))
    ends = [pod.ended() for pod in own]
    return SchedulerEnd(
        status=status,
        verdict=verdict,
        proven=status == "failed" and bool(findings) and findings[0].strength <= _PROVEN,
        exit_codes={
            pod.stream: _signed(pod.ended()["exitCode"])
            for pod in own
            if "exitCode" in pod.ended() and pod.role not in _NOT_OF_RANKS and not (pod.is_deleted or _is_unseen(pod))
        },
        started=min((moment(one["startedAt"]) or 0.0 for one in ends if one.get("startedAt")), default=None),
        ended=max((moment(one["finishedAt"]) or 0.0 for one in ends if one.get("finishedAt")), default=None),
    )


def _of_pod(pod: Pod) -> Iterator[Finding]:
    status = pod.body.get("status", {})
    name, reason = f"pod {pod.name}", str(status.get("reason", ""))
    message = " ".join(str(status.get("message", "")).split())
    text = f"{name}: {reason}: {message}" if message else f"{name}: {reason}"
    for one in pod.statuses():
        yield from _of_container(name, one)
    if reason == "Evicted":
        by_memory = "memory" in message and not _STORAGE.search(message)
        kind: FailureKind = "disk_full" if _STORAGE.search(message) else "oom_host" if by_memory else "rank_lost"
        yield Finding(1, kind, text)
    elif reason == "UnexpectedAdmissionError" or reason.startswith("OutOf"):
        yield Finding(2, "gpu_unavailable" if _GPU.search(f"{reason} {message}") else "config", text)
    elif reason == "DeadlineExceeded":
        yield Finding(5, "timeout", text)
    elif _LOST.search(reason):
        yield Finding(3, "rank_lost", text)
    for condition in pod.conditions():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            words = f"{condition.get('reason', 'disrupted')}: {condition.get('message', '')}".strip(": ")
            yield Finding(3, "rank_lost", f"{name}: {words}")
    waiting = pod.why_pending() if pod.phase == "Pending" else ""
    if waiting and "Unschedulable" in waiting:
        yield Finding(4, "gpu_unavailable" if _GPU.search(waiting) else "timeout", f"{name} waited: {waiting}")


def _is_unseen(pod: Pod) -> bool:
    """Whether its exit code is a word for one that nobody knows."""
    return pod.ended().get("reason") in _UNSEEN


def _of_container(name: str, status: dict) -> Iterator[Finding]:
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated") or {}
    waiting = status.get("state", {}).get("waiting") or {}
    if ended.get("reason") == "OOMKilled":
        yield Finding(
            0,
            "oom_host",
            f"{name}: container {status.get('name')} ended with OOMKilled, exit code {ended.get('exitCode')}",
        )
    if ended.get("reason") in _UNSEEN:
        text = f"{name}: container {status.get('name')} ended while its runtime was away ({ended['reason']})"
        yield Finding(5, "rank_lost", text)
    for one in (waiting, ended):
        reason, message = str(one.get("reason", "")), " ".join(str(one.get("message", "")).split())
        text = f"{name}: {reason}: {message}" if message else f"{name}: {reason}"
        if _PULL.search(reason):
            yield Finding(1, "image_pull", text)
        elif _CANNOT_START.search(reason):
            known = strongest([message], PATTERNS, started=False)
            yield Finding(1, known.pattern.kind if known else "config", text)


def hopeless(pods: Sequence[Pod], now: float, warnings: Sequence[str] = ()) -> str | None:
    """Why a run that is not over can never end well: an image that cannot be had; the other pods would hold their GPUs
    until the run's deadline. ``None`` while it may.

    ``now``: Unix seconds. ``warnings``: what the cluster complained of; between two tries a pod itself does not say why
    the last one failed.
    """
    for pod in pods:
        started = moment(pod.body.get("status", {}).get("startTime"))
        waited = 0.0 if started is None else now - started
        for status in pod.statuses():
            waiting = status.get("state", {}).get("waiting") or {}
            reason, message = str(waiting.get("reason", "")), " ".join(str(waiting.get("message", "")).split())
            tried = f'Failed to pull image "{pod.body["spec"]["containers"][0].get("image")}"'
            told = [message, *(warning for warning in warnings if tried in warning)]
            patience = _SOME_TRIES_SECONDS if any(map(_NOT_TO_BE_HAD.search, told)) else _PULL_SECONDS
            if _NEVER_PULLED.search(reason) or (_PULL.search(reason) and waited > patience):
                return f"pod {pod.name} has no image: {reason}" + (f": {message}" if message else "")
    return None


def _of_run(end: RunEnd | None, pods: list[Pod], nodes: int) -> list[Finding]:
    """What the run's own object adds where the pods say nothing better."""
    found = []
    if end is not None and "DeadlineExceeded" in end.message:
        found.append(Finding(5, "timeout", end.message))
    elif end is not None and "ValidationFailed" in end.message:
        found.append(Finding(2, "config", end.message))
    elif end is not None and not end.succeeded and len(pods) < nodes:
        there = {pod.number for pod in pods}
        gone = ", ".join(str(number) for number in range(nodes) if number not in there)
        found.append(Finding(6, "rank_lost", f"the pod of node {gone} is gone"))
    return found


def _of_deleted(pods: list[Pod]) -> Iterator[Finding]:
    """Pods that somebody deleted, where none failed by itself: a controller deletes the others of a failed run."""
    if any(pod.phase == "Failed" and not pod.is_deleted for pod in pods):
        return
    for pod in pods:
        if pod.is_deleted and pod.phase != "Succeeded":
            yield Finding(6, "rank_lost", f"pod {pod.name} was deleted")


def _of_warnings(warnings: Sequence[str]) -> Iterator[Finding]:
    """Why no pod ever ran, when its controller has deleted the pods that would say so."""
    for warning in warnings:
        if warning.startswith("FailedScheduling") and _GPU.search(warning):
            yield Finding(2, "gpu_unavailable", warning)
        elif warning.startswith("FailedCreate:"):
            yield Finding(2, "config", warning)
        elif _PULL.search(warning) or "Failed to pull image" in warning:
            yield Finding(1, "image_pull", warning)


def _signed(code: int) -> int:
    """An exit code as the contract has it: negative where a signal ended the container."""
    return _SIGNAL_BASE - code if _SIGNAL_BASE < code <= _SIGNAL_BASE + _MOST_SIGNAL else code
