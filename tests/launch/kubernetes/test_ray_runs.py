"""Runs by KubeRay as the cluster reports them: pods that are not the ranks', one that speaks for all, its own ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.conduct.cluster.collect import collect
from suite.launch.cluster.submission import Submission
from suite.launch.kubernetes.read_back import pod_templates
from suite.launch.kubernetes.scheduler import KubernetesScheduler
from tests.launch.kubernetes.memory import MemoryCluster
from tests.launch.kubernetes.runs import manifest_of, submission_of
from tests.launch.kubernetes.test_scheduler import printed, scheduler_of, submit

NODES = 2


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def handed_over(cluster: MemoryCluster, root: Path, variant: str) -> Submission:
    return submit(cluster, submission_of(manifest_of(NODES)), root, variant=variant)


def add_pods(cluster: MemoryCluster, submission: Submission, submitter: str = "Running", **status: Any) -> str:
    """As KubeRay makes them, with its own labels; the name of the submitter's. ``status``: of the head's pod."""
    objects = [cluster.objects[kind, name] for kind, name in submission.scheduler["objects"]]
    for role, count, template in pod_templates(objects):
        for number in range(count):
            name = f"run-{role.lower()}-{number}-x"
            kinds = {"head": "head", "workers": "worker"}
            labels = {"ray.io/node-type": kinds[role]} if role in kinds else {}
            cluster.objects["Pod", name] = {
                "metadata": {"name": name, "labels": {**labels, **template["metadata"]["labels"]}},
                "spec": template["spec"],
                "status": {"phase": submitter if role == "Launcher" else "Running"},
            }
    cluster.objects["Pod", "run-head-0-x"]["status"].update(status)
    return "run-launcher-0-x"


def end(cluster: MemoryCluster, submission: Submission, succeeded: bool, **more: str) -> None:
    kind, name = submission.scheduler["objects"][-1]
    if kind == "RayJob":
        words = ("Complete", "SUCCEEDED") if succeeded else ("Failed", "FAILED")
        status: dict[str, Any] = {"jobDeploymentStatus": words[0], "jobStatus": words[1], **more}
    else:
        status = {"conditions": [{"type": "Complete" if succeeded else "Failed", "status": "True", **more}]}
    cluster.objects[kind, name]["status"] = status


def gathered(cluster: MemoryCluster, submission: Submission, root: Path) -> Any:
    return collect(root, submission, scheduler_of(cluster).gather(submission))


@pytest.mark.parametrize("variant", ["rayjob", "raycluster"])
class TestBoth:
    def test_the_submitters_log_brings_all_ranks_home(
        self, cluster: MemoryCluster, tmp_path: Path, variant: str
    ) -> None:
        handed = handed_over(cluster, tmp_path, variant)
        name = add_pods(cluster, handed, "Succeeded")
        cluster.logs[name] = b"2026-11-22 INFO cli.py\n" + printed(handed, 0) + printed(handed, 1)
        cluster.logs["run-workers-0-x"] = b"Ray runtime started.\n"
        end(cluster, handed, True)
        assert scheduler_of(cluster).look(handed).word == "Complete"
        assert gathered(cluster, handed, tmp_path).status == "ok"
        logs = {path.name: path.read_bytes() for path in (tmp_path / handed.run_id / "logs").iterdir()}
        assert logs["submitter.log"] == b"2026-11-22 INFO cli.py\n"
        assert logs["run-workers-0-x.log"] == b"Ray runtime started.\n"

    def test_it_tells_the_phase_while_it_runs(self, cluster: MemoryCluster, tmp_path: Path, variant: str) -> None:
        handed = handed_over(cluster, tmp_path, variant)
        assert scheduler_of(cluster).look(handed).phase == "pending"
        name = add_pods(cluster, handed)
        cluster.logs[name] = b"".join(printed(handed, 0).splitlines(keepends=True)[:6])
        state = scheduler_of(cluster).look(handed)
        assert (state.phase, state.detail.partition(";")[0]) == ("running", "2 of 2 pods run")
        assert "iteration 0, " in state.detail

    def test_pods_that_went_with_the_cluster_are_not_lost_ranks(
        self, cluster: MemoryCluster, tmp_path: Path, variant: str
    ) -> None:
        handed = handed_over(cluster, tmp_path, variant)
        name = add_pods(cluster, handed, "Succeeded")
        table = b"Failures:\nRoot Cause (first observed failure):\n  rank      : 1 (local_rank: 0)\n  exitcode  : -9\n"
        cluster.logs[name] = printed(handed, 0)[:-200] + b"\n" + table
        for pod in ("run-head-0-x", "run-workers-0-x"):
            del cluster.objects["Pod", pod]
        end(cluster, handed, False, message="exit code 1")
        record = gathered(cluster, handed, tmp_path)
        assert record.status == "failed" and record.failure.kind == "rank_lost"
        assert not [line for line in record.failure.evidence if "is gone" in line]

    def test_a_pod_that_ran_out_of_memory_says_why(self, cluster: MemoryCluster, tmp_path: Path, variant: str) -> None:
        handed = handed_over(cluster, tmp_path, variant)
        killed = {"name": "ray", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
        name = add_pods(cluster, handed, "Failed", phase="Failed", containerStatuses=[killed])
        cluster.logs[name] = printed(handed, 0)[:-200]
        end(cluster, handed, False)
        record = gathered(cluster, handed, tmp_path)
        assert record.failure.kind == "oom_host"

    def test_the_limit_that_the_entry_point_keeps_is_a_timeout(
        self, cluster: MemoryCluster, tmp_path: Path, variant: str
    ) -> None:
        handed = handed_over(cluster, tmp_path, variant)
        name = add_pods(cluster, handed, "Succeeded")
        cluster.logs[name] = printed(handed, 0)[:-200] + b"\nthe ranks are ended: 60 s are over\n"
        end(cluster, handed, False)
        assert gathered(cluster, handed, tmp_path).failure.kind == "timeout"


@pytest.mark.parametrize(
    ("deployment", "job", "word"),
    [
        *(
            ("Complete", "STOPPED", "Failed"),
            ("ValidationFailed", None, "Failed"),
            ("Complete", "SUCCEEDED", "Complete"),
        ),
        *(("Running", "RUNNING", "Running"), ("Initializing", None, "Running"), ("Retrying", "FAILED", "Running")),
    ],
)
def test_a_rayjob_is_over_when_its_deployment_is(
    cluster: MemoryCluster, tmp_path: Path, deployment: str, job: str | None, word: str
) -> None:
    handed = handed_over(cluster, tmp_path, "rayjob")
    add_pods(cluster, handed)
    status = {"jobDeploymentStatus": deployment, "jobStatus": job}
    cluster.objects["RayJob", handed.scheduler["objects"][-1][1]]["status"] = status
    assert scheduler_of(cluster).look(handed).word == word


def test_a_ray_cluster_is_suspended_once_its_run_was_collected(cluster: MemoryCluster, tmp_path: Path) -> None:
    handed = handed_over(cluster, tmp_path, "raycluster")
    kinds = [kind for kind, _ in handed.scheduler["objects"]]
    assert kinds == ["ConfigMap", "RayCluster", "Job"], "the Job owns the others: deleted, it takes them with it"
    spec = cluster.objects["RayCluster", handed.scheduler["objects"][1][1]]["spec"]
    name = add_pods(cluster, handed, "Succeeded")
    cluster.logs[name] = printed(handed, 0) + printed(handed, 1)
    end(cluster, handed, True)
    assert "suspend" not in spec
    assert gathered(cluster, handed, tmp_path).status == "ok"
    assert spec["suspend"] is True


def test_a_cancelled_rayjob_keeps_what_it_said(cluster: MemoryCluster, tmp_path: Path) -> None:
    handed = handed_over(cluster, tmp_path, "rayjob")
    name = add_pods(cluster, handed)
    cluster.logs[name] = b"".join(printed(handed, 0).splitlines(keepends=True)[:-3])
    KubernetesScheduler(lambda context, namespace: cluster).cancel(handed)  # type: ignore[arg-type, return-value]
    assert {kind for kind, _ in cluster.objects} == {"Pod"}
    assert gathered(cluster, handed, tmp_path).status == "interrupted"
