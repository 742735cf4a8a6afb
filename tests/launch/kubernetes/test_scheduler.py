"""Handing over, looking, cancelling and gathering, on a cluster in memory; the real one is in kubernetes_server."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from suite.bundle.store import Bundle
from suite.conduct.cluster import standing as clusters
from suite.launch.cluster.launcher import Unanswered
from suite.launch.cluster.submission import submissions
from suite.launch.kubernetes import kept
from suite.launch.kubernetes.client import Refused
from suite.launch.kubernetes.kept import spool_path
from suite.launch.kubernetes.launcher import hand_over as hand_objects_over
from suite.launch.kubernetes.pod import parse, render_run
from suite.spec.base import UsageError
from tests.launch.kubernetes.handed import NODES, Handed, printed, scheduler_of, submit
from tests.launch.kubernetes.memory import MemoryCluster
from tests.launch.kubernetes.runs import IMAGE, kubernetes_manifest, settings_of, submission_of


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def run(cluster: MemoryCluster, tmp_path: Path) -> Handed:
    return Handed(cluster, submit(cluster, submission_of(kubernetes_manifest(NODES)), tmp_path), tmp_path)


def test_an_attempt_without_an_answer_is_found_by_its_own_mark_alone(run: Handed) -> None:
    """The objects of the attempt before it have the same names."""
    scheduler, handed = scheduler_of(run.cluster), run.submission
    attempt = handed.scheduler["attempt"]
    assert run.job["metadata"]["labels"]["suite/attempt"] == attempt
    assert handed.sending is None and handed.scheduler["server"] == run.cluster.server
    assert scheduler.look(handed.model_copy(update={"sending": attempt})).phase == "pending"
    assert scheduler.look(handed.model_copy(update={"sending": "another"})).phase == "gone"


def test_a_server_that_does_not_answer_may_have_taken_the_run(cluster, tmp_path, monkeypatch):
    def silent(body: dict[str, Any], dry_run: bool) -> None:
        if not dry_run and body["kind"] == "Job":
            cluster.objects["Job", body["metadata"]["name"]] = body
            raise Unanswered("the cluster does not answer")

    def away(kind: str, name: str) -> None:
        raise Unanswered("the cluster does not answer")

    cluster.on_create = silent
    monkeypatch.setattr(cluster, "delete", away)
    with pytest.raises(Unanswered):
        submit(cluster, submission_of(kubernetes_manifest(NODES)), tmp_path)
    (left,) = submissions(tmp_path)
    assert left.sending is not None and scheduler_of(cluster).look(left).phase == "pending"


class TestHandingOver:
    def test_everything_is_rehearsed_first_pods_among_it_and_what_is_there_is_left_alone(self, run: Handed) -> None:
        assert [body["kind"] for body in run.cluster.rehearsed] == ["ConfigMap", "Service", "Job", "Pod"]
        assert run.cluster.kinds() == ["ConfigMap", "Job", "Service"]
        before = dict(run.cluster.objects)
        with pytest.raises(Refused, match="already exists"):
            hand_objects_over(run.cluster, parse(render_run(run.submission, settings_of("job"))))  # type: ignore[arg-type]
        assert run.cluster.objects == before

    @pytest.mark.parametrize(
        ("refused", "rehearsal"), [("Service", True), ("Pod", True), ("ConfigMap", False), ("Job", False)]
    )
    @pytest.mark.parametrize("error", [Refused("no", 403, "no"), KeyboardInterrupt()], ids=["refusal", "Ctrl-C"])
    def test_a_refusal_at_any_step_leaves_nothing(self, cluster, tmp_path, refused, error, rehearsal):
        def refuse(body: dict[str, Any], dry_run: bool) -> None:
            if body["kind"] == refused and dry_run is rehearsal:
                raise error

        cluster.on_create = refuse
        with pytest.raises(type(error)):
            submit(cluster, submission_of(kubernetes_manifest()), tmp_path)
        assert cluster.kinds() == []
        left = list(submissions(tmp_path))
        if isinstance(error, Refused):
            assert left == []
        else:  # a second Ctrl-C comes before any answer: the next look asks the cluster
            assert [each.sending is not None for each in left] == [True]
            assert scheduler_of(cluster).look(left[0]).phase == "gone"

    def test_who_may_not_make_pods_may_still_make_jobs(self, cluster: MemoryCluster, tmp_path: Path) -> None:
        def refuse(body: dict[str, Any], dry_run: bool) -> None:
            if body["kind"] == "Pod":
                raise Refused("no", 403, 'User "x" cannot create resource "pods" in API group ""')

        cluster.on_create = refuse
        submit(cluster, submission_of(kubernetes_manifest()), tmp_path)
        assert cluster.kinds() == ["ConfigMap", "Job", "Service"]

    @pytest.mark.parametrize(
        ("name", "hard", "used"),
        [
            *(("requests.nvidia.com/gpu", "32", "17"), ("pods", "10", "9")),
            *(("limits.memory", "1Ti", "0"), ("cpu", "191999m", "0")),
        ],
    )
    def test_a_quota_is_held_against_all_pods_together(self, cluster, tmp_path, name, hard, used):
        status = {"hard": {name: hard}, "used": {name: used}}
        cluster.objects["ResourceQuota", "gpus"] = {"metadata": {"name": "gpus"}, "spec": {}, "status": status}
        submission = submission_of(kubernetes_manifest(2, 8, "cuda"), memory_bytes=100 << 30)
        with pytest.raises(UsageError, match=rf"the quota gpus of namespace default leaves \d+ of {name}"):
            submit(cluster, submission, tmp_path, cpus="96")
        status["hard"][name] = "64Ti"
        submit(cluster, submission, tmp_path, cpus="96")


class TestLooking:
    def test_pods_are_counted_and_the_first_reason_to_wait_or_the_phase_is_told(self, run: Handed) -> None:
        run.add_pod(0, "Running")
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes\nfit"}
        name = run.add_pod(1, "Pending", conditions=[waits])
        state = run.look()
        assert (state.phase, state.word) == ("running", "Running")
        assert state.detail == f"1 of 2 pods run; {name} waits: Unschedulable: 0/3 nodes fit"
        run.add_pods("Running", but=5)
        assert run.look().detail.startswith("2 of 2 pods run; iteration ")

    def test_warnings_of_this_run_or_its_queue_tell_why_there_are_no_pods(self, run: Handed) -> None:
        run.add_event(run.name, "FailedCreate", "exceeded quota")
        assert run.look().detail == "0 of 2 pods run; FailedCreate: exceeded quota"
        run.add_event(f"{run.name}0", "FailedCreate", "exceeded quota")
        assert run.look().detail == "0 of 2 pods run", "the name of another goes on"
        run.job["spec"]["suspend"] = True
        assert run.look().detail == "0 of 2 pods run; suspended: it waits in its queue"

    def test_a_run_is_over_when_its_job_says_so_or_all_its_pods(self, run: Handed) -> None:
        run.add_pods("Succeeded")
        assert run.look().word == "Complete"
        run.finish("Failed", "BackoffLimitExceeded")
        state = run.look()
        assert (state.phase, state.word, state.detail) == ("over", "Failed", "Job: Failed, BackoffLimitExceeded")

    def test_what_is_deleted_is_gone(self, run: Handed) -> None:
        run.cluster.objects.clear()
        assert run.look().phase == "gone"
        with pytest.raises(UsageError, match="the cluster has forgotten the run"):
            run.collect()

    def test_another_cluster_under_the_same_name_is_noticed(self, run: Handed) -> None:
        run.cluster.server = "https://other.example"
        with pytest.raises(UsageError, match=r"was submitted to https://cluster\.example"):
            run.look()


class TestComingHome:
    def test_logs_of_the_pods_become_a_bundle(self, run: Handed) -> None:
        run.add_pods("Succeeded", before=b"a line of the stack\n")
        run.cluster.logs[run.add_pod(77, "Failed")] = b"whose number is no node's\n"
        run.finish()
        record = run.collect()
        assert (record.status, record.run.launcher) == ("ok", "kubernetes")
        assert (Bundle(run.bundle).path / "logs" / "node-1.log").read_bytes() == b"a line of the stack\n"

    def test_a_good_run_whose_log_cannot_be_read_now_is_collected_later(self, run: Handed) -> None:
        *_, name = run.add_pods("Succeeded")
        run.finish()
        run.cluster.unreachable.add(name)
        with pytest.raises(UsageError, match=rf"the log of pod {name}.* again later"):
            run.collect()
        run.cluster.unreachable.clear()
        assert run.collect().status == "ok"

    def test_a_lost_nodes_log_keeps_nobody_from_looking_cancelling_and_collecting(self, run: Handed) -> None:
        run.cluster.unreachable.add(run.add_pod(0, "Running"))
        assert run.look().detail == "1 of 2 pods run"
        run.cluster.unreachable.add(run.add_pod(1, "Failed", reason="NodeLost"))
        run.finish("Failed")
        assert run.collect().failure.kind == "rank_lost"

    def test_a_cancelled_run_keeps_what_it_said_although_the_cluster_forgets(self, run: Handed) -> None:
        run.add_pods("Running", but=3, before=b"\xff\n")
        run.cancel()
        assert {kind for kind, _ in run.cluster.objects} == {"Pod"}  # their owner's end is theirs, on a real cluster
        run.cluster.objects.clear()
        assert run.look().phase == "over"
        assert run.collect().status == "interrupted"
        assert (run.bundle / "logs" / "node-0.log").read_bytes() == b"\xff\n"

    def test_a_run_that_another_submission_made_is_left_alone(self, run: Handed) -> None:
        for attempt in (None, "0badc0de"):
            with pytest.raises(UsageError, match="has a run of this name that another submission made"):
                run.cancel(attempt=attempt)
        assert run.cluster.kinds() == ["ConfigMap", "Job", "Service"]

    def test_objects_without_the_runs_label_stay(self, run: Handed) -> None:
        run.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "precious"}})
        run.cancel(objects=[["ConfigMap", "precious"], *run.submission.scheduler["objects"]])
        assert list(run.cluster.objects) == [("ConfigMap", "precious")]

    @pytest.mark.parametrize("objects", [[], ["Job"], [["Secret", "a"]], [["Job", "../a"]], [["Job", 1]], [[1, "a"]]])
    def test_what_is_no_object_of_a_run_is_not_asked_for(self, run: Handed, objects: list[Any]) -> None:
        scheduler, changed = scheduler_of(run.cluster), run.submission.with_scheduler(objects=objects)
        for ask in (scheduler.look, scheduler.cancel, scheduler.gather):
            with pytest.raises(UsageError, match="in its submission is no object of a run"):
                ask(changed)

    def test_settings_that_are_none_are_one_line(self, run: Handed) -> None:
        with pytest.raises(UsageError, match="its submission's settings are none of Kubernetes") as refusal:
            run.cancel(settings={**run.submission.scheduler["settings"], "rdma_count": "\ud800"})
        assert str(refusal.value).isprintable()

    @pytest.mark.parametrize("end", ["cancelled", "failed"])
    def test_a_run_submitted_again_forgets_what_is_left_of_an_earlier_attempt(self, run: Handed, end: str) -> None:
        if end == "cancelled":
            run.cancel()
            assert spool_path(run.root, run.submission.run_id).exists()
        else:
            run.add_pod(0, "Failed")
            run.finish("Failed")
            run.cancel()
            assert run.cluster.kinds() == ["ConfigMap", "Job", "Pod", "Service"], "what is over is not cancelled"
        run.collect()
        submit(run.cluster, run.submission, run.root)
        assert run.cluster.kinds() == ["ConfigMap", "Job", "Service"]
        assert run.look().phase == "pending"


class TestAnImageThatCannotBeHad:
    """The other pods would hold their GPUs until the run's deadline."""

    def pods(self, run: Handed, reason: str, message: str, seconds: float) -> None:
        name = run.add_pod(0, "Running")
        run.cluster.logs[name] = b"waiting\n" + b"".join(printed(run.submission, 0).splitlines(keepends=True)[:1])
        waiting = {"name": "suite", "state": {"waiting": {"reason": reason, "message": message}}}
        started = datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        run.add_pod(1, "Pending", containerStatuses=[waiting], startTime=started)

    @pytest.mark.parametrize(
        ("reason", "message", "seconds", "is_hopeless"),
        [
            ("ErrImageNeverPull", "", 1, True),
            ("ImagePullBackOff", "manifest unknown", 1, False),
            ("ImagePullBackOff", "manifest unknown", 120, True),
            ("ImagePullBackOff", "dial tcp: i/o timeout", 120, False),
            ("ImagePullBackOff", "dial tcp: i/o timeout", 1200, True),
            ("ContainerCreating", "", 9000, False),
        ],
    )
    def test_when_no_later_try_mends_it(self, run, reason, message, seconds, is_hopeless):
        self.pods(run, reason, message, seconds)
        found = run.look()
        assert found.phase == "running"
        assert (found.hopeless is not None and reason in found.hopeless) is is_hopeless

    def test_between_two_tries_the_last_ones_reason_is_in_the_clusters_warnings(self, run: Handed) -> None:
        self.pods(run, "ImagePullBackOff", f'Back-off pulling image "{IMAGE}"', 120)
        assert run.look().hopeless is None
        for image, is_hopeless in (("another", False), (IMAGE, True)):
            message = f'Failed to pull image "{image}": rpc error: code = NotFound desc = not found'
            run.add_event(f"{run.name}-1-x", "Failed", message)
            assert (run.look().hopeless is not None) is is_hopeless

    @pytest.mark.parametrize("how", ["wait", "collect"])
    def test_the_run_ends_before_its_deadline_and_says_why(self, run, monkeypatch, how):
        self.pods(run, "ImagePullBackOff", "manifest unknown", 120)
        monkeypatch.setattr(clusters, "find_scheduler", lambda name: scheduler_of(run.cluster))
        if how == "wait":
            clusters.wait_until_over(run.root, run.submission, lambda now: None, poll_seconds=0.001)
        record = clusters.collect_run(run.root, run.submission)
        assert ("Job", run.name) not in run.cluster.objects, "its pods give their devices back"
        assert (record.status, record.failure.kind) == ("failed", "image_pull")
        assert "manifest unknown" in record.failure.evidence[0]
        assert b"waiting" in (run.bundle / "logs" / "node-0.log").read_bytes()


def test_what_pods_printed_before_their_controller_deleted_them_is_in_the_bundle(run, monkeypatch):
    names = run.add_pods("Running", but=4)

    def fail(seconds: float) -> None:
        for name in names:
            run.cluster.delete("Pod", name)
        run.finish("Failed", "PodFailurePolicy")

    monkeypatch.setattr(clusters, "find_scheduler", lambda name: scheduler_of(run.cluster))
    monkeypatch.setattr(clusters.time, "sleep", fail)
    clusters.wait_until_over(run.root, run.submission, lambda now: None)
    record = clusters.collect_run(run.root, run.submission)
    assert record.failure is not None and record.failure.kind == "rank_lost"
    assert record.iterations.seconds
    assert scheduler_of(run.cluster).files(run.submission), "suite clean knows what was kept"


@pytest.mark.parametrize("zone", [b"Z", b"+05:30"])
def test_what_pods_print_is_followed_without_events_and_kept_where_the_run_is_cancelled(run, zone):
    run.cluster.zone = zone
    name = run.add_pod(0, "Running")
    run.cluster.logs[name] = b"one\ntwo\n" + printed(run.submission, 0) + b"three\n"
    scheduler, place = scheduler_of(run.cluster), {}

    def shown(lines: int) -> list[bytes]:
        for follower in kept._FOLLOWERS.values():
            follower.join()
        ((_, found),) = scheduler.printed(run.submission, place, lines)
        return found

    assert shown(20) == [b"one\n", b"two\n", b"three\n"]
    assert shown(2) == []
    run.cluster.logs[name] += b"four\n"
    assert shown(2) == [b"four\n"]
    run.cluster.unreachable.add(name)
    assert shown(2) == []
    run.cluster.unreachable.clear()
    spool = f"{run.submission.run_id}.kept"
    assert [path.name for path in scheduler.files(run.submission)] == [f"{spool}.node-0"]
    run.cancel()
    run.cluster.objects.clear()
    place.clear()
    assert shown(1) == [b"four\n"]
    assert shown(1) == []
    assert [path.name for path in scheduler.files(run.submission)] == [spool, f"{spool}.node-0"]


def test_whoever_may_not_read_logs_is_told(run, monkeypatch):
    run.add_pod(0, "Running")
    monkeypatch.setattr(run.cluster, "log", Mock(side_effect=Refused("you may not do this", 403, "forbidden")))
    with pytest.raises(Refused, match="you may not do this"):
        scheduler_of(run.cluster).printed(run.submission, {}, 2)
