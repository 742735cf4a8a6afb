"""Runs by KubeRay as the cluster reports them: pods that are not the ranks', one that speaks for all, its own ends."""

from pathlib import Path
from typing import Any

import pytest

from suite.launch.kubernetes.launcher import pod_templates
from tests.launch.kubernetes.handed import NODES, Handed, printed, submit
from tests.launch.kubernetes.memory import MemoryCluster
from tests.launch.kubernetes.runs import RAY_PODS, kubernetes_manifest, submission_of

TABLE = b"Failures:\nRoot Cause (first observed failure):\n  rank      : 1 (local_rank: 0)\n  exitcode  : -9\n"
KILLED = {"name": "ray", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}


class RayRun(Handed):
    """A run by KubeRay, of which another pod speaks for all ranks."""

    submitter = "run-launcher-0-x"

    def add_all_pods(self, submitter: str = "Running", said: bytes = b"", **status: Any) -> None:
        """As KubeRay makes them, with its own labels, and what the submitter's says. ``status``: of the head's pod."""
        objects = [self.cluster.objects[kind, name] for kind, name in self.submission.scheduler["objects"]]
        for role, (count, template) in zip(RAY_PODS, pod_templates(objects), strict=True):
            for number in range(count):
                name = f"run-{role.lower()}-{number}-x"
                kinds = {"head": "head", "workers": "worker"}
                labels = {"ray.io/node-type": kinds[role]} if role in kinds else {}
                self.cluster.objects["Pod", name] = {
                    "metadata": {"name": name, "labels": {**labels, **template["metadata"]["labels"]}},
                    "spec": template["spec"],
                    "status": {"phase": submitter if role == "Launcher" else "Running"},
                }
        self.cluster.objects["Pod", "run-head-0-x"]["status"].update(status)
        self.cluster.logs[self.submitter] = said

    def said(self, but: int = 0) -> bytes:
        """All ranks' events but the last lines of the first alone, if so."""
        lines = printed(self.submission, 0).splitlines(keepends=True)
        return b"".join(lines[:-but]) if but else b"".join(lines) + printed(self.submission, 1)

    def end(self, succeeded: bool, **more: str) -> None:
        kind, name = self.submission.scheduler["objects"][-1]
        if kind == "RayJob":
            words = ("Complete", "SUCCEEDED") if succeeded else ("Failed", "FAILED")
            status: dict[str, Any] = {"jobDeploymentStatus": words[0], "jobStatus": words[1], **more}
        else:
            status = {"conditions": [{"type": "Complete" if succeeded else "Failed", "status": "True", **more}]}
        self.cluster.objects[kind, name]["status"] = status


def handed_over(root: Path, variant: str) -> RayRun:
    cluster = MemoryCluster()
    return RayRun(cluster, submit(cluster, submission_of(kubernetes_manifest(NODES)), root, variant=variant), root)


@pytest.mark.parametrize("variant", ["rayjob", "raycluster"])
class TestBoth:
    @pytest.fixture
    def run(self, tmp_path: Path, variant: str) -> RayRun:
        return handed_over(tmp_path, variant)

    def test_the_submitters_log_tells_the_phase_and_brings_all_ranks_home(self, run: RayRun) -> None:
        assert run.look().phase == "pending"
        run.add_all_pods(said=run.said(but=5))
        assert run.look().detail.startswith("2 of 2 pods run; iteration ")
        run.add_all_pods("Succeeded", b"2026-11-22 INFO cli.py\n" + run.said())
        run.cluster.logs["run-workers-0-x"] = b"Ray runtime started.\n"
        run.end(True)
        assert run.look().word == "Complete"
        assert run.collect().status == "ok"
        logs = {path.name: path.read_bytes() for path in (run.bundle / "logs").iterdir()}
        assert logs["submitter.log"] == b"2026-11-22 INFO cli.py\n"
        assert logs["run-workers-0-x.log"] == b"Ray runtime started.\n"

    def test_a_submitter_that_nobody_schedules_is_told_while_the_ray_pods_hold_their_devices(self, run: RayRun) -> None:
        run.add_all_pods("Pending")
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "a taint"}
        run.cluster.objects["Pod", run.submitter]["status"]["conditions"] = [unscheduled]
        assert run.look().detail == f"2 of 2 pods run; {run.submitter} waits: Unschedulable: a taint"

    @pytest.mark.parametrize(
        ("last", "head", "kind"),
        [
            (TABLE, None, "rank_lost"),
            (b"", {"phase": "Failed", "containerStatuses": [KILLED]}, "oom_host"),
            (b"the ranks are ended: 60 s are over\n", {}, "timeout"),
        ],
        ids=["its pods went with the cluster", "a pod ran out of memory", "the limit of the entry point"],
    )
    def test_why_it_failed(self, run: RayRun, last: bytes, head: dict[str, Any] | None, kind: str) -> None:
        run.add_all_pods("Failed", run.said(but=1)[:-100] + b"\n" + last, **(head or {}))
        if head is None:
            for pod in ("run-head-0-x", "run-workers-0-x"):
                del run.cluster.objects["Pod", pod]
        run.end(False, message="exit code 1")
        failure = run.collect().failure
        assert failure.kind == kind
        assert not [line for line in failure.evidence if "is gone" in line]


def test_a_ray_cluster_is_suspended_once_its_run_was_collected(tmp_path: Path) -> None:
    run = handed_over(tmp_path, "raycluster")
    kinds = [kind for kind, _ in run.submission.scheduler["objects"]]
    assert kinds == ["ConfigMap", "RayCluster", "Job"], "the Job owns the others: deleted, it takes them with it"
    spec = run.cluster.objects["RayCluster", run.submission.scheduler["objects"][1][1]]["spec"]
    run.add_all_pods("Succeeded", run.said())
    run.end(True)
    assert "suspend" not in spec
    assert run.collect().status == "ok"
    assert spec["suspend"] is True
