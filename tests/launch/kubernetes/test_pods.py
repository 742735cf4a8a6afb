"""Why a run ended, from what a cluster says of its pods: pure, one case for each thing that happens."""

from typing import Any

import pytest

from suite.launch.kubernetes.pods import RunEnd, read_pods, run_end, scheduler_end

NAME = "suite-run"


def pod(number: int = 0, phase: str = "Failed", role: str = "node", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{NAME}-{number}-x",
            "labels": {"suite/role": role},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(number)},
        },
        "spec": {"containers": [{"name": "suite"}]},
        "status": {"phase": phase, **status},
    }


def container(state: dict[str, Any]) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "suite", "state": state}]}


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    times = {"startedAt": "2026-01-01T00:00:10Z", "finishedAt": "2026-01-01T00:01:10Z"}
    return container({"terminated": {"exitCode": code, "reason": reason, **times, **more}})


FAILED = RunEnd(False, "Job: Failed, PodFailurePolicy: Container suite failed with exit code 1")
DEADLINE = RunEnd(False, "Job: Failed, DeadlineExceeded: Job was active longer than specified deadline")
GPUS = "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."
NO_DEVICES = "Allocate failed due to devices unavailable for nvidia.com/gpu"
UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": GPUS}
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for another"}
PULLING = container({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}})
#: whose verdict only explains what ranks did not: the cluster waited, or saw too little
UNPROVEN = ("no GPU is free", "too long", "never placed and deleted", "a pod is gone")


def evicted(message: str, reason: str = "Evicted") -> list[dict[str, Any]]:
    return [pod(reason=reason, message=message)]


def not_started(message: str) -> list[dict[str, Any]]:
    return [pod(**ended(128, "StartError", message=message))]


CASES: dict[str, tuple[list[dict[str, Any]], RunEnd | None, str, str]] = {
    "OOM kill of the second": ([pod(**ended(1)), pod(1, **ended(137, "OOMKilled"))], FAILED, "oom_host", "OOMKilled"),
    "disk": (evicted("The node was low on resource: ephemeral-storage."), FAILED, "disk_full", "ephemeral-storage"),
    "shared memory": (evicted('Usage of EmptyDir volume "shm" exceeds the limit "16Gi".'), FAILED, "disk_full", "shm"),
    "node without memory": (evicted("The node was low on resource: memory."), FAILED, "oom_host", "memory"),
    "pull": ([pod(phase="Pending", **PULLING)], DEADLINE, "image_pull", "ImagePullBackOff"),
    "no such command": (not_started("exec: python: not found"), FAILED, "config", "not found"),
    "driver of the node": (not_started("Driver/library version mismatch"), FAILED, "driver_mismatch", "mismatch"),
    "no GPU is free": ([pod(phase="Pending", conditions=[UNPLACED])], DEADLINE, "gpu_unavailable", "Insufficient"),
    "device plugin": (evicted(NO_DEVICES, "UnexpectedAdmissionError"), FAILED, "gpu_unavailable", "Allocate failed"),
    "node lost": (evicted("Node n1 is unresponsive", "NodeLost"), FAILED, "rank_lost", "n1"),
    "preempted": ([pod(**ended(143), conditions=[PREEMPTED])], FAILED, "rank_lost", "PreemptionByScheduler"),
    "too long": (evicted("Pod was active", "DeadlineExceeded"), DEADLINE, "timeout", "DeadlineExceeded"),
    "never placed and deleted": ([], DEADLINE, "timeout", "DeadlineExceeded"),
    "a pod is gone": ([pod(0, phase="Running")], FAILED, "rank_lost", "the pod of node 1 is gone"),
}


@pytest.mark.parametrize("what", CASES)
def test_what_the_cluster_did_itself_is_told_and_proven_and_what_it_waited_for_is_told(what: str) -> None:
    pods, end, kind, evidence = CASES[what]
    found = scheduler_end(read_pods(pods), end, nodes=2 if "gone" in what else max(len(pods), 1))
    assert found.status == "failed"
    assert found.verdict.kind == kind
    assert evidence in found.verdict.evidence[0]
    assert found.proven is (what not in UNPROVEN)


@pytest.mark.parametrize(
    ("warning", "kind"),
    [
        (f"FailedScheduling: {GPUS}", "gpu_unavailable"),
        ("Failed: Failed to pull image r.io/x: unauthorized", "image_pull"),
        ("FailedCreate: exceeded quota: gpus, requested: 8, used: 0, limited: 4", "config"),
    ],
)
def test_a_warning_speaks_for_pods_that_were_deleted(warning: str, kind: str) -> None:
    found = scheduler_end([], DEADLINE, 2, warnings=[warning])
    assert (found.verdict.kind, found.verdict.evidence[0]) == (kind, warning)


def test_warnings_of_a_run_that_began_are_history() -> None:
    found = scheduler_end(read_pods([pod(**ended(137))]), FAILED, 1, warnings=[f"FailedScheduling: {GPUS}"])
    assert (found.verdict, found.exit_codes) == (None, {"node-0": -9})


def test_a_run_that_ended_well_needs_no_verdict_and_without_its_object_its_pods_tell() -> None:
    good = [pod(number, "Succeeded", **ended(0, "Completed")) for number in (1, 0)]
    for end in (RunEnd(True, "Job: Complete"), None):
        found = scheduler_end(read_pods(good), end, 2)
        assert (found.status, found.verdict, found.exit_codes) == ("ok", None, {"node-0": 0, "node-1": 0})
        assert (found.ended or 0) - (found.started or 0) == 60
    assert scheduler_end(read_pods(good[:1]), None, 2).status == "failed"
    assert scheduler_end([], None, 2).status is None


def test_a_cancelled_run_was_interrupted_whatever_its_pods_say() -> None:
    found = scheduler_end(read_pods([pod(**ended(137, "OOMKilled"))]), None, 1, cancelled=True)
    assert found.status == "interrupted"
    assert found.verdict.kind == "interrupted"


@pytest.mark.parametrize(("reason", "code"), [("Unknown", 255), ("ContainerStatusUnknown", 137)])
def test_of_containers_that_nobody_saw_end_the_output_tells(reason: str, code: int) -> None:
    unseen = [pod(0, "Succeeded", **ended(0, "Completed")), pod(1, **ended(code, reason))]
    found = scheduler_end(read_pods(unseen), FAILED, 2)
    assert (found.status, found.proven, found.exit_codes) == (None, False, {"node-0": 0})
    assert found.verdict.kind == "rank_lost"
    assert found.verdict.evidence[0].endswith(f"container suite ended while its runtime was away ({reason})")
    failed = scheduler_end(read_pods([pod(0, **ended(1)), unseen[1]]), FAILED, 2)
    assert (failed.status, failed.proven, failed.exit_codes) == ("failed", False, {"node-0": 1})


def condition(word: str) -> dict[str, Any]:
    return {"conditions": [{"type": word, "status": "True"}]}


def by_volcano(phase: str) -> dict[str, Any]:
    return {"state": {"phase": phase, "message": "as told"}}


def by_ray(deployment: str, job: str | None) -> dict[str, Any]:
    return {"jobDeploymentStatus": deployment, "jobStatus": job}


@pytest.mark.parametrize(
    ("kind", "status", "succeeded"),
    [
        ("Job", condition("Complete"), True),
        ("Job", condition("Failed"), False),
        ("Job", condition("SuccessCriteriaMet"), None),
        ("JobSet", condition("Completed"), True),
        ("PyTorchJob", condition("Succeeded"), True),
        ("PyTorchJob", condition("Running"), None),
        ("Job", by_volcano("Completed"), True),
        ("Job", by_volcano("Aborted"), False),
        ("Job", by_volcano("Running"), None),
        ("RayJob", by_ray("Complete", "SUCCEEDED"), True),
        ("RayJob", by_ray("Complete", "STOPPED"), False),
        ("RayJob", by_ray("ValidationFailed", None), False),
        ("RayJob", by_ray("Initializing", None), None),
        ("RayJob", by_ray("Retrying", "FAILED"), None),
    ],
)
def test_every_variant_says_in_its_own_way_that_a_run_is_over(kind, status, succeeded):
    end = run_end({"kind": kind, "status": status})
    assert (None if end is None else end.succeeded) is succeeded


@pytest.mark.parametrize(
    ("labels", "number"),
    [
        ({"training.kubeflow.org/replica-index": "0", "training.kubeflow.org/replica-type": "master"}, 0),
        ({"training.kubeflow.org/replica-index": "0", "training.kubeflow.org/replica-type": "worker"}, 1),
        ({"volcano.sh/task-index": "3"}, 3),
    ],
)
def test_the_number_of_a_pods_node_is_where_its_operator_writes_it(labels: dict, number: int) -> None:
    metadata = {"name": "p", "labels": labels}
    (found,) = read_pods([{"metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": {}}])
    assert found.number == number


def deleted(body: dict[str, Any], asked: str) -> dict[str, Any]:
    """A pod that was told at this time to end within 30 seconds."""
    last = f"2026-01-01T00:{asked}:30Z"
    return {**body, "metadata": {**body["metadata"], "deletionTimestamp": last, "deletionGracePeriodSeconds": 30}}


def test_ranks_that_end_because_their_pod_is_deleted_did_not_fail_by_themselves() -> None:
    pods = read_pods([deleted(pod(0, **ended(1)), "01"), deleted(pod(1, **ended(143)), "01")])
    found = scheduler_end(pods, FAILED, 2)
    assert found.verdict.kind == "rank_lost"
    assert f"pod {NAME}-1-x was deleted" in found.verdict.evidence
    assert found.exit_codes == {}
    assert not found.proven, "what ranks tell explains it better"


@pytest.mark.parametrize("first", [pod(0, **ended(1)), deleted(pod(0, **ended(1)), "02")])
def test_a_pod_that_failed_before_the_others_were_deleted_is_the_cause(first: dict[str, Any]) -> None:
    found = scheduler_end(read_pods([first, deleted(pod(1, **ended(143)), "01")]), FAILED, 2)
    assert found.verdict is None
    assert found.exit_codes == {"node-0": 1}
