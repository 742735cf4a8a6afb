"""Kubernetes as a cluster scheduler: where a submitted run is, how to end it, and what it left."""

import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from suite.launch.cluster.launcher import Gathered, Phase, SchedulerState, Stream
from suite.launch.cluster.submission import Submission, replace_file
from suite.launch.job import Job
from suite.launch.kubernetes import kept
from suite.launch.kubernetes.client import KINDS, Cluster, Refused, connect
from suite.launch.kubernetes.pod import ATTEMPT_LABEL, PATTERNS, RUN_LABEL, render_reader
from suite.launch.kubernetes.pods import Pod, hopeless, part, read_pod, read_pods, run_end, scheduler_end, text
from suite.launch.kubernetes.settings import KubernetesSettings, object_name
from suite.launch.stream import EVENT_PREFIX, parse_event, read_on
from suite.launch.traces import iteration_of, phase_of
from suite.spec.base import UsageError, first_line, printable

_READ_SECONDS, _CLEAR_SECONDS, _POLL_SECONDS = 600.0, 120.0, 1.0
_TAIL_LINES = 40
#: what marks the attempt that made a run's object; older ones have no mark
_ATTEMPT = ("metadata", "labels", ATTEMPT_LABEL)
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
_NODE = re.compile(r"node-(\d{1,9})")


class KubernetesScheduler:
    """See ``Scheduler``. A submission's scheduler facts: ``context``, ``server``, ``settings``, ``objects`` (kind and
    name of each, the run last), ``attempt`` (the run's label), ``spool`` (a file here for what the cluster forgets)."""

    name = "kubernetes"
    #: An API server ends a request after a minute (its ``--request-timeout``), and shows at once what it took. Should
    #: the run appear later all the same, it is found by its name, of which the server takes no second one.
    settle_seconds = 60.0

    def __init__(self, reach: Callable[[str | None, str], Cluster] = connect) -> None:
        self._reach = reach

    def facts(self, job: Job) -> dict[str, Any]:
        """The image; nodes and devices are the cluster's choice, and the ranks report them."""
        return {"image": job.image}

    def look(self, submission: Submission) -> SchedulerState:
        cluster, nodes = self._cluster(submission), submission.job.nodes
        found, snapshot = _ask(cluster, submission), kept.read_snapshot(_spool(submission))
        if snapshot is not None:
            return SchedulerState(phase="over", word="Failed" if snapshot.given_up else "Cancelled")
        # of an attempt whose answer is not known: what is still there of the one before it has the same name
        is_another = submission.sending is not None and text(found.run, *_ATTEMPT) != submission.sending
        if is_another or (found.run is None and not found.pods):
            return SchedulerState(phase="gone", word="Deleted", detail=f"nothing is left in {cluster.namespace}")
        end = run_end(found.run)
        pods = read_pods(found.pods)
        own = [pod for pod in pods if pod.role != "submitter"]
        if end is not None or (len(own) >= nodes and all(pod.is_over for pod in own)):
            word = "Complete" if (end.succeeded if end else all(pod.phase == "Succeeded" for pod in own)) else "Failed"
            return SchedulerState(phase="over", word=word, detail=end.message if end else "")
        running = [pod for pod in own if pod.phase == "Running"]
        phase: Phase = "running" if running else "pending"
        waits = [f"{pod.name} waits: {why}" for pod in pods if pod.phase == "Pending" and (why := pod.why_pending())]
        if not waits and len(own) < nodes:
            waits = found.warnings[-1:]
        details = [f"{len(running)} of {nodes} pods run", *waits[:1]]  # the first reason is every other's
        # by a queue, such as Kueue's; operators of version 1 keep that in their run policy
        if part(found.run, "spec").get("suspend") or part(found.run, "spec", "runPolicy").get("suspend"):
            details.append("suspended: it waits in its queue")
        speakers = [pod for pod in pods if pod.phase == "Running" and pod.role != "ray" and pod.number == 0]
        if speakers:
            with suppress(Refused):
                tail = cluster.log(speakers[-1].name, speakers[-1].container, tail_lines=_TAIL_LINES)
                details += _progress(b"".join(tail))
        never = hopeless(pods, time.time(), found.warnings)
        return SchedulerState(phase=phase, word=phase.capitalize(), detail="; ".join(details), hopeless=never)

    def cancel(self, submission: Submission) -> None:
        """Keep the output so far, then delete the run: what Kubernetes ends, it forgets."""
        state = self.look(submission)
        if not state.is_under_way:
            return
        cluster = self._cluster(submission)
        found = _ask(cluster, submission)
        if found.run is not None and text(found.run, *_ATTEMPT) != (submission.scheduler.get("attempt") or ""):
            raise UsageError(
                f"{submission.run_id}: namespace {cluster.namespace} has a run of this name that another submission "
                "made, and it is left alone; cancel it in the folder it was submitted from"
            )
        _keep_each(kept.end_of_printed, cluster, read_pods(found.pods), _spool(submission))
        found = found._replace(given_up=state.hopeless is not None)
        replace_file(_spool(submission), json.dumps(found._asdict()))
        _delete(cluster, submission)

    def gather(self, submission: Submission) -> Gathered:
        """Logs of the pods, and what a claim holds. Raises UsageError when the cluster has forgotten the run."""
        cluster = self._cluster(submission)
        settings, spool, job = _settings(submission), _spool(submission), submission.job
        snapshot = kept.read_snapshot(spool)
        found = snapshot or _ask(cluster, submission)
        if found.run is None and not found.pods and settings.claim is None:
            lost = f"the cluster has forgotten the run and its logs (namespace {cluster.namespace})"
            raise UsageError(f"{submission.run_id}: {lost}; nothing was kept on a claim either")
        pods = read_pods(found.pods)
        if snapshot is None:
            _keep_each(kept.end_of_printed, cluster, pods, spool, needed=settings.claim is None)
        # KubeRay takes its pods away when the job is over: that one is gone says nothing there
        nodes = 0 if settings.is_ray else job.nodes
        # also of pods that are gone, as a failed Job takes them along
        streams = [
            Stream(name, kept.read_kept(spool, name).splitlines(keepends=True), _ranks_of(name, job))
            for name, _ in kept.kept_streams(spool)
        ]
        if settings.claim is not None:
            streams.append(Stream("claim", _read_claim(cluster, submission, settings).splitlines(keepends=True)))
        end = run_end(found.run)
        for kind, name in _objects(submission):
            if kind == "RayCluster" and snapshot is None:  # KubeRay does not know that the job is over
                with suppress(Refused):
                    cluster.patch(kind, name, {"spec": {"suspend": True}})
        told = scheduler_end(pods, end, nodes, found.warnings, cancelled=snapshot is not None and not snapshot.given_up)
        return Gathered(tuple(streams), told, PATTERNS if settings.is_ray else ())

    def printed(self, submission: Submission, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
        """What is shown is kept too."""
        if kept.read_snapshot(_spool(submission)) is None:
            self._keep(submission)
        streams = kept.kept_streams(_spool(submission))
        return [(name, kept.without_moments(read_on(path, place, lines))) for name, path in streams]

    def keep(self, submission: Submission) -> None:
        """What pods have printed so far, where no claim holds it: logs are cut, and deleted pods take theirs along."""
        if _settings(submission).claim is None:
            self._keep(submission)

    def _keep(self, submission: Submission) -> None:
        cluster = self._cluster(submission)
        started = [pod for pod in read_pods(_pods_of(cluster, submission)) if pod.phase != "Pending"]
        _keep_each(kept.keep_printed, cluster, started, _spool(submission))

    def files(self, submission: Submission) -> list[Path]:
        spool = _spool(submission)
        return [*filter(Path.exists, [spool]), *(path for _, path in kept.kept_streams(spool))]

    def _cluster(self, submission: Submission) -> Cluster:
        cluster = self._reach(submission.scheduler.get("context"), _settings(submission).namespace)
        server = submission.scheduler.get("server")
        if server is not None and cluster.server != server:
            raise UsageError(f"{submission.run_id} was submitted to {server}, the kubeconfig says {cluster.server} now")
        return cluster


def _ask(cluster: Cluster, submission: Submission) -> kept.Snapshot:
    kind, name = _objects(submission)[-1]
    run, pods = cluster.get(kind, name), _pods_of(cluster, submission)
    is_whole = len(pods) >= submission.job.nodes and all(pod.phase != "Pending" for pod in read_pods(pods))
    return kept.Snapshot(run=run, pods=pods, warnings=[] if is_whole else _warnings(cluster, name))


def _ranks_of(stream: str, job: Job) -> tuple[int, ...]:
    """Whose output a pod's log holds: a submitter's that of all, none where its number is of no node of the job."""
    ranks, node = tuple(range(job.ranks)), _NODE.fullmatch(stream)
    if node is None:
        return ranks if stream == "submitter" else ()
    return ranks[int(node[1]) * job.ranks_per_node :][: job.ranks_per_node]


def _keep_each(
    keep: Callable[[Cluster, Path, Pod], None], cluster: Cluster, pods: list[Pod], spool: Path, needed: bool = False
) -> None:
    """Keep what pods have printed, also where the nodes of some are out of reach by now. Raises UsageError where a good
    run would be lost. ``needed``: nothing but the logs holds what the ranks measured."""
    for pod in pods:
        try:
            keep(cluster, spool, pod)
        except Refused as error:
            if error.status < 500:
                raise
            if needed and pod.phase == "Succeeded":
                raise UsageError(
                    f"the log of pod {pod.name}, which holds its results, cannot be read now: {error.message}; "
                    "run suite collect again later"
                ) from error


def _warnings(cluster: Cluster, name: str) -> list[str]:
    """What the cluster complains of about the run and its pods; nothing where events may not be read."""
    try:
        events = cluster.find("Event", fieldSelector="type=Warning")
    except Refused:
        return []
    # behind the name a dash, so that the tenth run's are not the first one's
    own = [event for event in events if f"{text(event, 'involvedObject', 'name')}-".startswith(f"{name}-")]
    own.sort(key=lambda event: text(event, "lastTimestamp") or text(event, "metadata", "creationTimestamp"))
    told = (f"{text(event, 'reason')}: {text(event, 'message')}" for event in own)
    return list(dict.fromkeys(" ".join(words.split()) for words in told))


def clear_away(cluster: Cluster, submission: Submission) -> None:
    """Delete what the cluster still has of an earlier attempt, and wait for its pods: they have the new ones' labels.
    Raises UsageError where they do not end."""
    if submission.launcher != KubernetesScheduler.name:
        return
    _delete(cluster, submission)
    deadline = time.monotonic() + _CLEAR_SECONDS
    while pods := _pods_of(cluster, submission):
        if time.monotonic() > deadline:
            raise UsageError(f"pods of an earlier {submission.run_id} do not end: {pods[0]['metadata']['name']}")
        for pod in pods:
            with suppress(Refused):  # their controller may be the only one who may
                cluster.delete("Pod", pod["metadata"]["name"])
        time.sleep(_POLL_SECONDS)


def _delete(cluster: Cluster, submission: Submission) -> None:
    """The run itself first: deleting it takes the others with it where they are its own. What does not carry the run's
    label stays: a submission that somebody handed on may name any object."""
    for kind, name in reversed(_objects(submission)):
        found = cluster.get(kind, name)
        if found is not None and text(found, "metadata", "labels", RUN_LABEL) == object_name(submission.run_id):
            cluster.delete(kind, name)


def _objects(submission: Submission) -> list[tuple[str, str]]:
    """Kind and name of each, the run last. Raises UsageError for what no submission of a run names."""
    found = submission.fact("objects", list)
    for one in found or [None]:
        match one:
            case [str(kind), str(name)] if kind in KINDS and _NAME.fullmatch(name):
                continue
        raise UsageError(f"{submission.run_id}: {ascii(one)[:200]} in its submission is no object of a run")
    return [(kind, name) for kind, name in found]


def _pods_of(cluster: Cluster, submission: Submission) -> list[dict[str, Any]]:
    return cluster.find("Pod", labelSelector=f"{RUN_LABEL}={object_name(submission.run_id)}")


def _read_claim(cluster: Cluster, submission: Submission, settings: KubernetesSettings) -> bytes:
    """What the ranks wrote on the claim, printed by a pod that is then deleted. Raises UsageError."""
    name = cluster.create(render_reader(submission.job, settings))["metadata"]["name"]
    called = f"pod {name}, which reads the claim {settings.claim},"
    deadline = time.monotonic() + _READ_SECONDS
    try:
        while (body := cluster.get("Pod", name)) is not None:
            reader = read_pod(body)
            if reader.is_over:
                return kept.whole_log(cluster, _spool(submission), reader)
            if time.monotonic() > deadline:
                raise UsageError(f"{called} does not start: {reader.why_pending() or reader.phase}")
            time.sleep(_POLL_SECONDS)
        raise UsageError(f"{called} was deleted")
    finally:
        cluster.delete("Pod", name)


def _settings(submission: Submission) -> KubernetesSettings:
    try:
        return KubernetesSettings.model_validate(submission.fact("settings", dict))
    except ValidationError as error:
        why = printable(first_line(error))
        raise UsageError(f"{submission.run_id}: its submission's settings are none of Kubernetes: {why}") from error


def _spool(submission: Submission) -> Path:
    return Path(submission.fact("spool", str))


def _progress(tail: bytes) -> list[str]:
    for line in reversed(tail.splitlines()):
        event = parse_event(line[line.find(EVENT_PREFIX) :]) or {}
        phase, iteration = phase_of(event), iteration_of(event)
        if phase is not None and iteration is not None:
            return [f"iteration {iteration}, {phase} done"]
    return []
