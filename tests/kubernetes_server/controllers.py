"""What makes pods of Jobs on a cluster, played by the tests: no controller and no scheduler of Kubernetes runs here.

A stand-in, not the real thing: the controller manager of 1.20, the version that Debian packages, knows no Indexed Jobs.
Its rules are those that the suite's Jobs ask for: one pod for each completion, placed on the one node that there is;
the first pod that fails or is deleted ends the Job and takes the other pods with it; a deleted Job takes all it owns.
"""

import copy
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from kubernetes.client import CoreV1Api

from suite.launch.cluster.launcher import Unanswered
from suite.launch.kubernetes.client import Cluster, Refused

INDEX = "batch.kubernetes.io/job-completion-index"
TICK_SECONDS = 0.2


def _pod_of(job: dict[str, Any], index: int) -> dict[str, Any]:
    """The pod of one completion of an Indexed Job: with its number, its name in the network and its owner."""
    name = job["metadata"]["name"]
    template = copy.deepcopy(job["spec"]["template"])
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
    template["metadata"].update(name=f"{name}-{index}-stand", ownerReferences=[owner])
    template["metadata"].setdefault("annotations", {})[INDEX] = str(index)
    template["spec"]["hostname"] = f"{name}-{index}"
    return {"apiVersion": "v1", "kind": "Pod", **template}


class Controllers:
    """Play the controllers of one namespace until told to stop.

    ``node``: the name of the node that takes all pods; with none they wait, and ``waits`` says why.
    """

    def __init__(self, cluster: Cluster, node: str | None, waits: str = "") -> None:
        self._cluster, self._node, self._waits = cluster, node, waits
        self._jobs: dict[str, dict[str, Any]] = {}
        self._stopped = threading.Event()
        self._trouble: list[BaseException] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Whatever went wrong in the block's time is raised at its end."""
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()
        if self._trouble:
            raise self._trouble[0]

    def _work(self) -> None:
        try:
            while not self._stopped.wait(TICK_SECONDS):
                with suppress(Unanswered):  # a controller outlives its API server
                    self._look_round()
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self._trouble.append(error)

    def _look_round(self) -> None:
        jobs = {job["metadata"]["uid"]: job for job in self._cluster.find("Job")}
        for uid in set(self._jobs) - set(jobs):
            for kind in ("Pod", "ConfigMap", "Service"):
                for body in self._cluster.find(kind):
                    if _is_owned(body, uid):
                        self._cluster.delete(kind, body["metadata"]["name"])
            del self._jobs[uid]
        for uid, job in jobs.items():
            if uid not in self._jobs:
                self._begin(job)
            if not job.get("status", {}).get("conditions"):
                self._go_on(job)
            self._jobs[uid] = job
        self._place_readers()

    def _begin(self, job: dict[str, Any]) -> None:
        for index in range(job["spec"]["completions"]):
            body = _pod_of(job, index)
            if self._node is not None:
                body["spec"]["nodeName"] = self._node
            try:
                self._cluster.create(body)
                if self._node is None:
                    self._leave_waiting(body["metadata"]["name"])
            except Refused as error:
                if error.status != 409:  # made when the server's answer was lost
                    raise

    def _leave_waiting(self, pod: str) -> None:
        why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self._waits}
        self._cluster.patch("Pod", f"{pod}/status", {"status": {"phase": "Pending", "conditions": [why]}})
        about = {"kind": "Pod", "name": pod, "namespace": self._cluster.namespace}
        event = {"reason": "FailedScheduling", "message": self._waits, "type": "Warning", "involvedObject": about}
        # it stays when the pod is gone
        self._cluster.create({"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{pod}-waits"}, **event})

    def _place_readers(self) -> None:
        """Pods that bring home what is on a claim have no Job."""
        for body in self._cluster.find("Pod", labelSelector="suite/role=reader"):
            if not body["spec"].get("nodeName") and self._node is not None:
                binding = {"metadata": body["metadata"], "target": {"kind": "Node", "name": self._node}}
                core = CoreV1Api(self._cluster._api)
                core.create_namespaced_binding(self._cluster.namespace, binding, _preload_content=False)

    def _go_on(self, job: dict[str, Any]) -> None:
        uid, nodes = job["metadata"]["uid"], job["spec"]["completions"]
        pods = [pod for pod in self._cluster.find("Pod") if _is_owned(pod, uid)]
        phases = [pod.get("status", {}).get("phase") for pod in pods]
        if len(pods) < nodes or "Failed" in phases:
            self._end(job, "Failed", "PodFailurePolicy", "a pod failed or was deleted")
        elif phases.count("Succeeded") == nodes:
            self._end(job, "Complete", "", "")
        elif _seconds_of(job) > job["spec"]["activeDeadlineSeconds"]:
            self._end(job, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")

    def _end(self, job: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """What still runs of a failed Job is deleted, and its logs with it."""
        try:
            condition = {"type": kind, "status": "True", "reason": reason, "message": message}
            self._cluster.patch("Job", f"{job['metadata']['name']}/status", {"status": {"conditions": [condition]}})
        except Refused as error:
            if error.status != 404:  # deleted meanwhile
                raise
        for pod in self._cluster.find("Pod"):
            if _is_owned(pod, job["metadata"]["uid"]) and pod["status"].get("phase") in ("Pending", "Running"):
                self._cluster.delete("Pod", pod["metadata"]["name"])


def _seconds_of(job: dict[str, Any]) -> float:
    return time.time() - datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp()


def _is_owned(body: dict[str, Any], uid: str) -> bool:
    return any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences", ()))
