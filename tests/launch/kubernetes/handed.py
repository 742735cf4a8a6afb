"""A run that was handed over to a cluster in memory, and what then becomes of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.conduct.cluster.hand_over import hand_over
from suite.conduct.cluster.standing import collect
from suite.launch.cluster.submission import Submission
from suite.launch.kubernetes.scheduler import KubernetesScheduler
from tests.launch.kubernetes.memory import MemoryCluster
from tests.launch.kubernetes.runs import launcher_of
from tests.synthetic import rank_events

NODES = 2


def submit(cluster: MemoryCluster, submission: Submission, root: Path, **options: Any) -> Submission:
    launcher = launcher_of({}, cluster, **options)
    (document,) = launcher.render([submission], root)
    (submitted,) = hand_over(launcher, document, root)
    return submitted


def scheduler_of(cluster: MemoryCluster) -> KubernetesScheduler:
    return KubernetesScheduler(lambda context, namespace: cluster)  # type: ignore[arg-type, return-value]


def printed(submission: Submission, rank: int) -> bytes:
    events = rank_events(submission.manifest, rank, lambda iteration, _: 0.01 * (iteration + 1))
    return b"".join(b"::suite:: " + json.dumps(event).encode() + b"\n" for event in events)


@dataclass(frozen=True)
class Handed:
    """``submission`` was handed over to ``cluster`` from the results folder ``root``."""

    cluster: MemoryCluster
    submission: Submission
    root: Path

    @property
    def name(self) -> str:
        return str(self.submission.scheduler["objects"][-1][1])

    @property
    def job(self) -> dict[str, Any]:
        return self.cluster.objects["Job", self.name]

    @property
    def bundle(self) -> Path:
        return self.root / self.submission.run_id

    def look(self) -> Any:
        return scheduler_of(self.cluster).look(self.submission)

    def collect(self) -> Any:
        return collect(self.root, self.submission, scheduler_of(self.cluster).gather(self.submission))

    def cancel(self, **changed: Any) -> None:
        """``changed``: what the submission's file says otherwise."""
        scheduler_of(self.cluster).cancel(self.submission.with_scheduler(**changed))

    def add_pod(self, number: int, phase: str, **status: Any) -> str:
        template, name = self.job["spec"]["template"], f"{self.name}-{number}-x"
        labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": str(number)}
        body = {"metadata": {"name": name, "labels": labels}, "spec": template["spec"]}
        self.cluster.objects["Pod", name] = {**body, "status": {"phase": phase, **status}}
        return name

    def add_pods(self, phase: str, but: int = 0, before: bytes = b"") -> list[str]:
        """One for each node, which has printed its rank's events without the last ``but``."""
        names = [self.add_pod(node, phase) for node in range(NODES)]
        for node, name in enumerate(names):
            lines = printed(self.submission, node).splitlines(keepends=True)
            self.cluster.logs[name] = before + b"".join(lines[: len(lines) - but])
        return names

    def add_event(self, of: str, reason: str, message: str) -> None:
        body = {"metadata": {"name": "e"}, "involvedObject": {"name": of}, "reason": reason, "message": message}
        self.cluster.objects["Event", "e"] = body

    def finish(self, kind: str = "Complete", reason: str = "") -> None:
        self.job["status"] = {"conditions": [{"type": kind, "status": "True", "reason": reason}]}
