"""Handing over, looking, cancelling and gathering, on a cluster in memory; the real one is in kubernetes_server."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from suite.bundle.store import Bundle
from suite.conduct.cluster import standing as clusters
from suite.conduct.cluster.collect import collect
from suite.conduct.cluster.hand_over import hand_over, write_documents
from suite.launch.cluster.launcher import NodeSetup
from suite.launch.cluster.scheduler import Unanswered
from suite.launch.cluster.submission import Submission, submissions
from suite.launch.kubernetes.client import Refused
from suite.launch.kubernetes.hand_over import hand_over as hand_objects_over
from suite.launch.kubernetes.launcher import KubernetesLauncher
from suite.launch.kubernetes.options import KubernetesOptions
from suite.launch.kubernetes.render import parse
from suite.launch.kubernetes.run import render_run, spool_path
from suite.launch.kubernetes.scheduler import KubernetesScheduler
from suite.spec.base import UsageError
from tests.launch.kubernetes.memory import MemoryCluster
from tests.launch.kubernetes.runs import IMAGE, manifest_of, settings_of, submission_of
from tests.synthetic import rank_events

NODES = 2


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def launcher_of(cluster: MemoryCluster | None = None, **options: Any) -> KubernetesLauncher:
    """The launcher as the commands make it, connected to this cluster."""
    nodes = NodeSetup(python="python", image=IMAGE)
    return KubernetesLauncher(KubernetesOptions(**options), nodes, cluster)  # type: ignore[arg-type]


def submit(cluster: MemoryCluster, submission: Submission, root: Path, **options: Any) -> Submission:
    launcher = launcher_of(cluster, **options)
    (document,) = launcher.render([submission], root)
    (submitted,) = hand_over(launcher, document, root)
    return submitted


@pytest.fixture
def handed(cluster: MemoryCluster, tmp_path: Path) -> Submission:
    return submit(cluster, submission_of(manifest_of(NODES)), tmp_path)


def scheduler_of(cluster: MemoryCluster) -> KubernetesScheduler:
    return KubernetesScheduler(lambda context, namespace: cluster)  # type: ignore[arg-type, return-value]


def job_name(submission: Submission) -> str:
    return str(submission.scheduler["objects"][-1][1])


def test_an_attempt_without_an_answer_is_found_by_its_own_mark_alone(
    cluster: MemoryCluster, handed: Submission
) -> None:
    """The objects of the attempt before it have the same names."""
    scheduler, attempt = scheduler_of(cluster), handed.scheduler["attempt"]
    assert cluster.objects["Job", job_name(handed)]["metadata"]["labels"]["suite/attempt"] == attempt
    assert handed.sending is None and handed.scheduler["server"] == cluster.server
    assert scheduler.look(handed.model_copy(update={"sending": attempt})).phase == "pending"
    assert scheduler.look(handed.model_copy(update={"sending": "another"})).phase == "gone"


def test_a_server_that_does_not_answer_may_have_taken_the_run(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(body: dict[str, Any], dry_run: bool) -> None:
        if not dry_run and body["kind"] == "Job":
            cluster.objects["Job", body["metadata"]["name"]] = body
            raise Unanswered("the cluster does not answer")

    def away(kind: str, name: str) -> None:
        raise Unanswered("the cluster does not answer")

    cluster.on_create = silent
    monkeypatch.setattr(cluster, "delete", away)
    with pytest.raises(Unanswered):
        submit(cluster, submission_of(manifest_of(NODES)), tmp_path)
    (left,) = submissions(tmp_path)
    assert left.sending is not None and scheduler_of(cluster).look(left).phase == "pending"


def add_pod(cluster: MemoryCluster, submission: Submission, number: int, phase: str, **status: Any) -> str:
    job = cluster.objects["Job", job_name(submission)]
    template = job["spec"]["template"]
    name = f"{job_name(submission)}-{number}-x"
    labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": str(number)}
    cluster.objects["Pod", name] = {
        "metadata": {"name": name, "labels": labels},
        "spec": template["spec"],
        "status": {"phase": phase, **status},
    }
    return name


def finish(cluster: MemoryCluster, submission: Submission, kind: str = "Complete", reason: str = "") -> None:
    status = {"conditions": [{"type": kind, "status": "True", "reason": reason}]}
    cluster.objects["Job", job_name(submission)]["status"] = status


def printed(submission: Submission, rank: int) -> bytes:
    events = rank_events(submission.manifest, rank, lambda iteration, _: 0.01 * (iteration + 1))
    return b"".join(b"::suite:: " + json.dumps(event).encode() + b"\n" for event in events)


class TestHandingOver:
    def test_everything_is_rehearsed_first_pods_among_it(self, cluster: MemoryCluster, handed: Submission) -> None:
        assert [body["kind"] for body in cluster.rehearsed] == ["ConfigMap", "Service", "Job", "Pod"]
        assert cluster.kinds() == ["ConfigMap", "Job", "Service"]

    @pytest.mark.parametrize("refused", ["ConfigMap", "Service", "Job", "Pod"])
    @pytest.mark.parametrize("error", [Refused("no", 403, "no"), KeyboardInterrupt()], ids=["refusal", "Ctrl-C"])
    @pytest.mark.parametrize("rehearsal", [True, False])
    def test_a_refusal_at_any_step_leaves_nothing(
        self, cluster: MemoryCluster, tmp_path: Path, refused: str, error: BaseException, rehearsal: bool
    ) -> None:
        def refuse(body: dict[str, Any], dry_run: bool) -> None:
            if body["kind"] == refused and dry_run is rehearsal:
                raise error

        cluster.on_create = refuse
        if refused == "Pod" and not rehearsal:
            return  # pods are the controller's to make
        with pytest.raises(type(error)):
            submit(cluster, submission_of(manifest_of()), tmp_path)
        assert cluster.kinds() == []
        left = list(submissions(tmp_path))
        if isinstance(error, Refused):
            assert left == []
        else:  # a second Ctrl-C comes before any answer: the next look asks the cluster
            assert [each.sending is not None for each in left] == [True]
            assert scheduler_of(cluster).look(left[0]).phase == "gone"

    def test_a_run_that_is_there_already_is_left_alone(self, cluster: MemoryCluster, handed: Submission) -> None:
        before = dict(cluster.objects)
        with pytest.raises(Refused, match="already exists"):
            hand_objects_over(cluster, parse(render_run(handed, settings_of("job"))))  # type: ignore[arg-type]
        assert cluster.objects == before

    def test_who_may_not_make_pods_may_still_make_jobs(self, cluster: MemoryCluster, tmp_path: Path) -> None:
        def refuse(body: dict[str, Any], dry_run: bool) -> None:
            if body["kind"] == "Pod":
                raise Refused("no", 403, 'User "x" cannot create resource "pods" in API group ""')

        cluster.on_create = refuse
        submit(cluster, submission_of(manifest_of()), tmp_path)
        assert cluster.kinds() == ["ConfigMap", "Job", "Service"]

    @pytest.mark.parametrize(
        ("name", "hard", "used"),
        [
            ("requests.nvidia.com/gpu", "32", "17"),
            ("pods", "10", "9"),
            ("limits.memory", "1Ti", "0"),
            ("cpu", "191999m", "0"),
        ],
    )
    def test_a_quota_is_held_against_all_pods_together(
        self, cluster: MemoryCluster, tmp_path: Path, name: str, hard: str, used: str
    ) -> None:
        status = {"hard": {name: hard}, "used": {name: used}}
        cluster.objects["ResourceQuota", "gpus"] = {"metadata": {"name": "gpus"}, "spec": {}, "status": status}
        submission = submission_of(manifest_of(2, 8, "cuda"), memory_bytes=100 << 30)
        with pytest.raises(UsageError, match=rf"the quota gpus of namespace default leaves \d+ of {name}"):
            submit(cluster, submission, tmp_path, cpus_per_node="96")
        status["hard"][name] = "64Ti"
        submit(cluster, submission, tmp_path, cpus_per_node="96")


class TestLooking:
    def test_pods_are_counted_and_the_first_reason_to_wait_is_told(
        self, cluster: MemoryCluster, handed: Submission
    ) -> None:
        add_pod(cluster, handed, 0, "Running")
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes\nfit"}
        name = add_pod(cluster, handed, 1, "Pending", conditions=[waits])
        state = scheduler_of(cluster).look(handed)
        assert (state.phase, state.word) == ("running", "Running")
        assert state.detail == f"1 of 2 pods run; {name} waits: Unschedulable: 0/3 nodes fit"

    def test_the_phase_is_told_while_it_runs(self, cluster: MemoryCluster, handed: Submission) -> None:
        for node in range(NODES):
            name = add_pod(cluster, handed, node, "Running")
            cluster.logs[name] = b"".join(printed(handed, node).splitlines(keepends=True)[:6])
        detail = scheduler_of(cluster).look(handed).detail
        assert detail.startswith("2 of 2 pods run; iteration 0, ")

    def test_warnings_tell_why_there_are_no_pods(self, cluster: MemoryCluster, handed: Submission) -> None:
        cluster.objects["Event", "e"] = {
            "metadata": {"name": "e"},
            "involvedObject": {"name": job_name(handed)},
            "reason": "FailedCreate",
            "message": "exceeded quota",
        }
        assert scheduler_of(cluster).look(handed).detail == "0 of 2 pods run; FailedCreate: exceeded quota"

    def test_warnings_of_a_run_whose_name_goes_on_are_not_this_runs(
        self, cluster: MemoryCluster, handed: Submission
    ) -> None:
        cluster.objects["Event", "e"] = {
            "metadata": {"name": "e"},
            "involvedObject": {"name": f"{job_name(handed)}0"},
            "reason": "FailedCreate",
            "message": "exceeded quota",
        }
        assert scheduler_of(cluster).look(handed).detail == "0 of 2 pods run"

    def test_a_queue_that_holds_the_run_back_is_told(self, cluster: MemoryCluster, handed: Submission) -> None:
        cluster.objects["Job", job_name(handed)]["spec"]["suspend"] = True
        state = scheduler_of(cluster).look(handed)
        assert (state.phase, state.detail) == ("pending", "0 of 2 pods run; suspended: it waits in its queue")

    def test_a_run_is_over_when_its_job_says_so_or_all_its_pods(
        self, cluster: MemoryCluster, handed: Submission
    ) -> None:
        for node in range(NODES):
            add_pod(cluster, handed, node, "Succeeded")
        assert scheduler_of(cluster).look(handed).word == "Complete"
        finish(cluster, handed, "Failed", "BackoffLimitExceeded")
        state = scheduler_of(cluster).look(handed)
        assert (state.phase, state.word, state.detail) == ("over", "Failed", "Job: Failed, BackoffLimitExceeded")

    def test_what_is_deleted_is_gone(self, cluster: MemoryCluster, handed: Submission) -> None:
        cluster.objects.clear()
        assert scheduler_of(cluster).look(handed).phase == "gone"
        with pytest.raises(UsageError, match="the cluster has forgotten the run"):
            scheduler_of(cluster).gather(handed)

    def test_another_cluster_under_the_same_name_is_noticed(self, cluster: MemoryCluster, handed: Submission) -> None:
        cluster.server = "https://other.example"
        with pytest.raises(UsageError, match=r"was submitted to https://cluster\.example"):
            scheduler_of(cluster).look(handed)


class TestComingHome:
    def test_logs_of_the_pods_become_a_bundle(self, cluster: MemoryCluster, handed: Submission, tmp_path: Path) -> None:
        for node in range(NODES):
            name = add_pod(cluster, handed, node, "Succeeded")
            cluster.logs[name] = b"a line of the stack\n" + printed(handed, node)
        finish(cluster, handed)
        record = collect(tmp_path, handed, scheduler_of(cluster).gather(handed))
        assert record.status == "ok"
        assert record.run.launcher == "kubernetes"
        bundle = Bundle(tmp_path / handed.run_id)
        assert (bundle.path / "logs" / "node-1.log").read_bytes() == b"a line of the stack\n"

    def test_a_pod_with_a_number_of_no_node_is_read_for_no_rank(
        self, cluster: MemoryCluster, handed: Submission, tmp_path: Path
    ) -> None:
        for node in (*range(NODES), 77):
            name = add_pod(cluster, handed, node, "Succeeded" if node < NODES else "Failed")
            cluster.logs[name] = printed(handed, node) if node < NODES else b"who am I\n"
        finish(cluster, handed)
        assert collect(tmp_path, handed, scheduler_of(cluster).gather(handed)).status == "ok"

    def test_a_good_run_whose_log_cannot_be_read_now_is_collected_later(
        self, cluster: MemoryCluster, handed: Submission, tmp_path: Path
    ) -> None:
        for node in range(NODES):
            name = add_pod(cluster, handed, node, "Succeeded")
            cluster.logs[name] = printed(handed, node)
        finish(cluster, handed)
        cluster.unreachable.add(name)
        with pytest.raises(UsageError, match=rf"the log of pod {name}.* again later"):
            scheduler_of(cluster).gather(handed)
        cluster.unreachable.clear()
        assert collect(tmp_path, handed, scheduler_of(cluster).gather(handed)).status == "ok"

    def test_a_lost_nodes_log_keeps_nobody_from_looking_cancelling_and_collecting(
        self, cluster: MemoryCluster, handed: Submission, tmp_path: Path
    ) -> None:
        cluster.unreachable.add(add_pod(cluster, handed, 0, "Running"))
        assert scheduler_of(cluster).look(handed).detail == "1 of 2 pods run"
        cluster.unreachable.add(add_pod(cluster, handed, 1, "Failed", reason="NodeLost"))
        finish(cluster, handed, "Failed")
        record = collect(tmp_path, handed, scheduler_of(cluster).gather(handed))
        assert record.failure is not None and record.failure.kind == "rank_lost"

    def test_a_cancelled_run_keeps_what_it_said_although_the_cluster_forgets(
        self, cluster: MemoryCluster, handed: Submission, tmp_path: Path
    ) -> None:
        for node in range(NODES):
            name = add_pod(cluster, handed, node, "Running")
            cluster.logs[name] = b"\xff\n" + b"".join(printed(handed, node).splitlines(keepends=True)[:-3])
        scheduler_of(cluster).cancel(handed)
        assert {kind for kind, _ in cluster.objects} == {"Pod"}  # their owner's end is theirs, on a real cluster
        cluster.objects.clear()
        assert scheduler_of(cluster).look(handed).phase == "over"
        record = collect(tmp_path, handed, scheduler_of(cluster).gather(handed))
        assert record.status == "interrupted"
        assert (tmp_path / handed.run_id / "logs" / "node-0.log").read_bytes() == b"\xff\n"

    def test_a_run_that_another_submission_made_is_left_alone(self, cluster: MemoryCluster, handed: Submission) -> None:
        for attempt in (None, "0badc0de"):
            with pytest.raises(UsageError, match="has a run of this name that another submission made"):
                scheduler_of(cluster).cancel(handed.with_scheduler(attempt=attempt))
        assert cluster.kinds() == ["ConfigMap", "Job", "Service"]

    def test_objects_without_the_runs_label_stay(self, cluster: MemoryCluster, handed: Submission) -> None:
        mine = {"kind": "ConfigMap", "metadata": {"name": "precious"}}
        cluster.create({"apiVersion": "v1", **mine})
        named = [["ConfigMap", "precious"], *handed.scheduler["objects"]]
        scheduler_of(cluster).cancel(handed.with_scheduler(objects=named))
        assert list(cluster.objects) == [("ConfigMap", "precious")]

    @pytest.mark.parametrize("objects", [[], ["Job"], [["Secret", "a"]], [["Job", "../a"]], [["Job", 1]], [[1, "a"]]])
    def test_what_is_no_object_of_a_run_is_not_asked_for(
        self, cluster: MemoryCluster, handed: Submission, objects: list[Any]
    ) -> None:
        for ask in (scheduler_of(cluster).look, scheduler_of(cluster).cancel, scheduler_of(cluster).gather):
            with pytest.raises(UsageError, match="in its submission is no object of a run"):
                ask(handed.with_scheduler(objects=objects))

    @pytest.mark.parametrize("settings", [{"rdma_count": "\ud800"}, {"variant": "none"}, {"namespace": 1}])
    def test_settings_that_are_none_are_one_line(
        self, cluster: MemoryCluster, handed: Submission, settings: dict[str, Any]
    ) -> None:
        changed = {**handed.scheduler["settings"], **settings}
        with pytest.raises(UsageError, match="its submission's settings are none of Kubernetes") as refusal:
            scheduler_of(cluster).look(handed.with_scheduler(settings=changed))
        assert str(refusal.value).isprintable()

    def test_what_is_over_or_gone_is_not_cancelled(self, cluster: MemoryCluster, handed: Submission) -> None:
        finish(cluster, handed)
        scheduler_of(cluster).cancel(handed)
        assert cluster.kinds() == ["ConfigMap", "Job", "Service"]

    def test_a_run_submitted_again_forgets_the_cancelled_one(
        self, cluster: MemoryCluster, handed: Submission, tmp_path: Path
    ) -> None:
        scheduler_of(cluster).cancel(handed)
        assert spool_path(tmp_path, handed.run_id).exists()
        collect(tmp_path, handed, scheduler_of(cluster).gather(handed))
        submit(cluster, handed, tmp_path)
        assert scheduler_of(cluster).look(handed).phase == "pending"

    def test_what_is_left_of_an_earlier_attempt_makes_room(
        self, cluster: MemoryCluster, handed: Submission, tmp_path: Path
    ) -> None:
        add_pod(cluster, handed, 0, "Failed")
        finish(cluster, handed, "Failed")
        collect(tmp_path, handed, scheduler_of(cluster).gather(handed))
        submit(cluster, handed, tmp_path)
        assert cluster.kinds() == ["ConfigMap", "Job", "Service"]
        assert scheduler_of(cluster).look(handed).phase == "pending"

    def test_a_damaged_memory_of_a_cancelled_run_is_named(
        self, cluster: MemoryCluster, handed: Submission, tmp_path: Path
    ) -> None:
        spool_path(tmp_path, handed.run_id).write_text("{")
        with pytest.raises(UsageError, match="cannot be used"):
            scheduler_of(cluster).look(handed)

    def test_runs_that_were_only_rendered_can_be_collected_too(self, cluster: MemoryCluster, tmp_path: Path) -> None:
        submission = submission_of(manifest_of(NODES))
        launcher = launcher_of()
        (path,) = write_documents(launcher, launcher.render([submission], tmp_path), tmp_path / "yaml", tmp_path)
        for body in parse(path.read_text()):
            cluster.create(body)
        (kept,) = submissions(tmp_path)
        for node in range(NODES):
            cluster.logs[add_pod(cluster, kept, node, "Succeeded")] = printed(kept, node)
        finish(cluster, kept)
        assert collect(tmp_path, kept, scheduler_of(cluster).gather(kept)).status == "ok"


class TestAnImageThatCannotBeHad:
    """The other pods would hold their GPUs until the run's deadline."""

    def pods(self, cluster: MemoryCluster, handed: Submission, reason: str, message: str, seconds: float) -> None:
        name = add_pod(cluster, handed, 0, "Running")
        cluster.logs[name] = b"waiting for the others\n" + b"".join(printed(handed, 0).splitlines(keepends=True)[:1])
        waiting = {"name": "suite", "state": {"waiting": {"reason": reason, "message": message}}}
        started = datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        add_pod(cluster, handed, 1, "Pending", containerStatuses=[waiting], startTime=started)

    @pytest.mark.parametrize(
        ("reason", "message", "seconds", "is_hopeless"),
        [
            ("ErrImageNeverPull", "", 1, True),
            ("InvalidImageName", "", 1, True),
            ("ImagePullBackOff", "manifest unknown", 5, False),
            ("ImagePullBackOff", "manifest unknown", 120, True),
            ("ErrImagePull", "pull access denied", 120, True),
            ("ImagePullBackOff", "dial tcp: i/o timeout", 120, False),
            ("ImagePullBackOff", "dial tcp: i/o timeout", 1200, True),
            ("ContainerCreating", "", 9000, False),
        ],
    )
    def test_when_no_later_try_mends_it(
        self, cluster: MemoryCluster, handed: Submission, reason: str, message: str, seconds: float, is_hopeless: bool
    ) -> None:
        self.pods(cluster, handed, reason, message, seconds)
        found = scheduler_of(cluster).look(handed)
        assert found.phase == "running"
        assert (found.hopeless is not None and reason in found.hopeless) is is_hopeless

    def test_between_two_tries_the_last_ones_reason_is_in_the_clusters_warnings(
        self, cluster: MemoryCluster, handed: Submission
    ) -> None:
        self.pods(cluster, handed, "ImagePullBackOff", f'Back-off pulling image "{IMAGE}"', 120)
        assert scheduler_of(cluster).look(handed).hopeless is None
        for image, is_hopeless in (("another", False), (IMAGE, True)):
            cluster.objects["Event", "e"] = {
                "metadata": {"name": "e"},
                "involvedObject": {"name": f"{job_name(handed)}-1-x"},
                "reason": "Failed",
                "message": f'Failed to pull image "{image}": rpc error: code = NotFound desc = not found',
            }
            assert (scheduler_of(cluster).look(handed).hopeless is not None) is is_hopeless

    @pytest.mark.parametrize("how", ["wait", "collect"])
    def test_the_run_ends_before_its_deadline_and_says_why(
        self, cluster: MemoryCluster, handed: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        self.pods(cluster, handed, "ImagePullBackOff", "manifest unknown", 120)
        monkeypatch.setattr(clusters, "find_scheduler", lambda name: scheduler_of(cluster))
        if how == "wait":
            clusters.wait_until_over(tmp_path, handed, lambda now: None, poll_seconds=0.001)
        record = clusters.collect_run(tmp_path, handed)
        assert ("Job", job_name(handed)) not in cluster.objects, "its pods give their devices back"
        assert record.failure is not None
        assert (record.status, record.failure.kind) == ("failed", "image_pull")
        assert "manifest unknown" in record.failure.evidence[0]
        assert b"waiting for the others" in (tmp_path / handed.run_id / "logs" / "node-0.log").read_bytes()


def test_what_pods_printed_before_their_controller_deleted_them_is_in_the_bundle(
    cluster: MemoryCluster, handed: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(NODES):
        name = add_pod(cluster, handed, number, "Running")
        cluster.logs[name] = b"".join(printed(handed, number).splitlines(keepends=True)[:-4])

    def fail(seconds: float) -> None:
        for number in range(NODES):
            cluster.delete("Pod", f"{job_name(handed)}-{number}-x")
        finish(cluster, handed, "Failed", "PodFailurePolicy")

    monkeypatch.setattr(clusters, "find_scheduler", lambda name: scheduler_of(cluster))
    monkeypatch.setattr(clusters.time, "sleep", fail)
    clusters.wait_until_over(tmp_path, handed, lambda now: None)
    record = clusters.collect_run(tmp_path, handed)
    assert record.failure is not None and record.failure.kind == "rank_lost"
    assert record.iterations.seconds
    assert scheduler_of(cluster).files(handed), "suite clean knows what was kept"


@pytest.mark.parametrize("zone", [b"Z", b"+05:30"])
def test_what_pods_print_is_followed_without_events(cluster: MemoryCluster, handed: Submission, zone: bytes) -> None:
    cluster.zone = zone
    name = add_pod(cluster, handed, 0, "Running")
    cluster.logs[name] = b"one\ntwo\n" + printed(handed, 0) + b"three\n"
    scheduler, place = scheduler_of(cluster), {}
    assert scheduler.printed(handed, place, 20) == [("node-0", [b"one\n", b"two\n", b"three\n"])]
    assert scheduler.printed(handed, place, 2) == [("node-0", [])]
    cluster.logs[name] += b"four\n"
    assert scheduler.printed(handed, place, 2) == [("node-0", [b"four\n"])]
    cluster.unreachable.add(name)
    assert scheduler.printed(handed, place, 2) == [("node-0", [])]


def test_the_lines_of_a_run_that_was_cancelled_are_those_that_were_kept(
    cluster: MemoryCluster, handed: Submission
) -> None:
    cluster.logs[add_pod(cluster, handed, 0, "Running")] = b"one\ntwo\n"
    scheduler, place = scheduler_of(cluster), {}
    assert scheduler.files(handed) == []
    scheduler.cancel(handed)
    cluster.objects.clear()
    assert scheduler.printed(handed, place, 1) == [("node-0", [b"two\n"])]
    assert scheduler.printed(handed, place, 1) == []
    assert [path.name for path in scheduler.files(handed)] == [f"{handed.run_id}.kept"]


def test_a_pod_has_a_home_that_can_be_written_unless_its_user_names_another(cluster: MemoryCluster) -> None:
    assert submission_of(manifest_of()).job.env["HOME"] == "/tmp"
    assert submission_of(manifest_of(), HOME="/elsewhere").job.env["HOME"] == "/elsewhere"
