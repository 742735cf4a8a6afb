"""No accepted job is forgotten and none is sent twice, whatever happens between a submission and its answer."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from suite.bundle.store import ATTIC, Bundle
from suite.conduct.cluster.hand_over import ToDo, hand_over, prepare, to_do, write_documents
from suite.conduct.cluster.standing import collect_run, standing
from suite.launch.cluster.launcher import Document, NodeSetup, Unanswered
from suite.launch.cluster.submission import FOLDER, read_submission, submission_path, submissions
from suite.launch.kubernetes.scheduler import KubernetesScheduler
from suite.launch.slurm.launcher import SlurmLauncher
from suite.launch.slurm.scheduler import SlurmScheduler
from suite.launch.slurm.settings import SlurmSettings
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from tests.command import suite
from tests.conduct.sessions import raced
from tests.launch.kubernetes.memory import MemoryCluster
from tests.launch.kubernetes.runs import IMAGE
from tests.launch.slurm.jobs import manifest
from tests.launch.slurm.stand_in import StandIn
from tests.synthetic import as_lines, make_bundle, rank_events
from tests.waiting import wait_until


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{made.folder}:/usr/bin:/bin")
    monkeypatch.setattr("suite.launch.slurm.client.REASON_SECONDS", 0.0)
    return made


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def wanted(count: int) -> list[Manifest]:
    return [manifest(1, 2, repeat, "cpu") for repeat in range(1, count + 1)]


def documents(root: Path, count: int, **options: Any) -> tuple[SlurmLauncher, list[Document]]:
    made = SlurmLauncher(SlurmSettings(**options), NodeSetup(python="python"))
    left = to_do(wanted(count), root, retry_failed=True)
    return made, made.render(prepare(left.manifests, made), root)


def one(root: Path) -> tuple[SlurmLauncher, Document, Path]:
    """A launcher, a document of one run, and the path of its submission."""
    made, (document,) = documents(root, 1)
    return made, document, submission_path(root, document.name)


def left_to_do(root: Path) -> ToDo:
    return to_do(wanted(1), root, retry_failed=True)


def write_output(slurm: StandIn, job: str, of: Manifest) -> None:
    lines = "".join(as_lines(rank_events(of, rank, lambda iteration, rank: 1.0)) for rank in range(of.layout.ranks))
    slurm.output(job).write_text("".join(f"0: ::suite:: {line}\n" for line in lines.splitlines()))


def test_of_six_drivers_that_submit_the_same_runs_one_does(slurm: StandIn, runs: Path) -> None:
    def submit_all(found: tuple[SlurmLauncher, list[Document]]) -> tuple[list[str], list[str]]:
        taken: list[ToDo] = []
        sent = [each.run_id for document in found[1] for each in hand_over(found[0], document, runs, taken.append)]
        return sent, [run for each in taken for run in each.others["under_way"]]

    told = raced(6, lambda: documents(runs, 3, array=True), submit_all)
    names = sorted(each.run.id for each in wanted(3))
    assert sorted(map(sorted, (sent for sent, _ in told))) == [[]] * 5 + [names]
    assert sorted(map(sorted, (taken for _, taken in told))) == [[]] + [names] * 5, "the others say who has them"
    assert len(slurm.jobs) == 1
    assert sorted(path.name for path in (runs / FOLDER).iterdir()) == [f"{name}.json" for name in names]


def test_runs_of_an_array_are_members_of_one_job(slurm: StandIn, runs: Path) -> None:
    made, (document,) = documents(runs, 3, array=True, starter="srun")
    handed = hand_over(made, document, runs)
    jobs = {each.run_id: f"70_{index}" for index, each in enumerate(handed)}
    assert len(slurm.jobs) == 1 and made.submitted_json(handed, {}) == {"jobs": jobs}
    assert made.where(handed[2]) == "job 70_2"
    assert {each.scheduler["starter"] for each in submissions(runs)} == {"srun"}


def test_of_an_array_only_what_nobody_has_is_sent(slurm: StandIn, runs: Path) -> None:
    made, (document,) = documents(runs, 3, array=True)
    _, first, _ = one(runs)
    hand_over(made, first, runs)
    sent = hand_over(made, document, runs)
    assert [each.manifest.run.repeat for each in sent] == [2, 3] and len(slurm.jobs) == 2


def signalled_while_slurm_answers(slurm: StandIn, work: Callable[[], object], number: int) -> str:
    """What a driver says that gets a signal after Slurm has taken its job and before it has said so."""
    slurm.say("sleep", "4")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            work()
            said = "done"
        except BaseException as error:  # noqa: BLE001 (told by the parent)
            said = type(error).__name__
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    wait_until(lambda: any(slurm.jobs.values()))
    os.kill(child, number)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()


def test_ctrl_c_while_slurm_answers_waits_for_the_answer(slurm: StandIn, runs: Path) -> None:
    made, document, path = one(runs)
    said = signalled_while_slurm_answers(slurm, lambda: hand_over(made, document, runs), signal.SIGINT)
    handed = read_submission(path)
    assert (said, handed.scheduler["job"], handed.sending) == ("KeyboardInterrupt", "70", None)
    assert left_to_do(runs).others["under_way"] == [document.name]


def test_a_driver_that_is_killed_while_slurm_answers_leaves_a_job_that_is_found(slurm: StandIn, runs: Path) -> None:
    made, document, path = one(runs)
    assert signalled_while_slurm_answers(slurm, lambda: hand_over(made, document, runs), signal.SIGKILL) == ""
    handed = read_submission(path)
    assert handed.scheduler["job"] is None and handed.sending is not None
    assert left_to_do(runs).others["under_way"] == [document.name]
    write_output(slurm, "70", handed.manifest)
    slurm.forget()
    assert left_to_do(runs).others["uncollected"] == [document.name]
    assert collect_run(runs, handed).status == "ok"


def test_what_was_never_taken_is_to_be_done(slurm: StandIn, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.say("refuse", "Batch job submission failed: Socket timed out on send/recv operation")
    made, document, path = one(runs)
    with pytest.raises(Unanswered, match="Socket timed out"):
        hand_over(made, document, runs)
    now = standing(runs, read_submission(path))
    assert (now.phase, now.word) == ("pending", "sending")
    assert left_to_do(runs).others["under_way"] == [document.name]
    monkeypatch.setattr(SlurmScheduler, "settle_seconds", 0.0)
    assert standing(runs, read_submission(path)).word == "not taken"
    slurm.say("refuse", "")
    (again,) = documents(runs, 1)[1]
    (handed,) = hand_over(made, again, runs)
    assert handed.scheduler["job"] == "70" and read_submission(path).sending is None


def test_while_the_queue_cannot_be_asked_nothing_is_decided(slurm: StandIn, runs: Path) -> None:
    made, document, path = one(runs)
    hand_over(made, document, runs)
    slurm.say("down", "yes")
    with pytest.raises(UsageError, match="Unable to contact"):
        left_to_do(runs)
    with pytest.raises(UsageError, match="Unable to contact"):
        hand_over(made, document, runs)
    assert read_submission(path).scheduler["job"] == "70"


def test_a_refusal_leaves_the_failed_run_where_it_was(slurm: StandIn, runs: Path) -> None:
    make_bundle(runs, wanted(1)[0], status="failed", completed=3)
    made, document, path = one(runs)
    slurm.say("refuse", "Invalid partition name specified")
    with pytest.raises(UsageError, match="Invalid partition"):
        hand_over(made, document, runs)
    assert not path.exists() and Bundle(runs / document.name).manifest().run.id == document.name
    slurm.say("refuse", "")
    hand_over(made, document, runs)
    assert not (runs / document.name).exists(), "a run that is with the cluster must not look collected"
    assert [kept.name for kept in (runs / ATTIC).iterdir()] == [f"{document.name}.1"]
    slurm.forget()
    slurm.say("refuse", "Invalid partition name specified")
    with pytest.raises(UsageError, match="Invalid partition"):
        hand_over(made, document, runs)
    assert read_submission(path).scheduler["job"] == "70", "what is known of the attempt before stays known"


def test_attempts_have_names_and_outputs_of_their_own(slurm: StandIn, runs: Path) -> None:
    made, document, path = one(runs)
    seen = []
    for _ in range(2):
        hand_over(made, document, runs)
        (job,) = slurm.jobs.values()
        assert read_submission(path).scheduler["name"] == job[0]
        seen.append(job)
        slurm.forget()
    (first, _, output), (second, _, other) = seen
    assert first != second and output != other, "what the first still writes is not taken for the second's"


def test_what_another_driver_has_submitted_is_not_rendered_over(slurm: StandIn, runs: Path, tmp_path: Path) -> None:
    made, document, path = one(runs)
    hand_over(made, document, runs)
    with pytest.raises(UsageError, match="another driver has begun it meanwhile"):
        write_documents(made, [document], tmp_path / "scripts", runs)
    assert read_submission(path).scheduler["job"] == "70" and not (tmp_path / "scripts").exists()


SMALL = ("--backend", "megatron", "--size", "1M", "--device", "cpu", "--gpus-per-node", "2", "--repeats", "2")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    cluster = MemoryCluster("lab")
    monkeypatch.setattr("suite.launch.kubernetes.client.connect", lambda context, namespace: cluster)
    return cluster


def submitted(runs: Path, *more: str) -> Result:
    return suite("submit", "kubernetes", *SMALL, "--image", IMAGE, "--runs", runs, "--json", *more)


def test_detached_all_are_submitted_at_once(cluster: MemoryCluster, tmp_path: Path) -> None:
    done = submitted(tmp_path, "--detach")
    assert done.exit_code == 0
    body = json.loads(done.stdout)
    assert body["namespace"] == "lab" and set(body["runs"].values()) == {"submitted"}
    assert cluster.kinds() == ["ConfigMap"] * 2 + ["Job"] * 2 + ["Service"] * 2
    assert {objects["metadata"]["namespace"] for objects in cluster.objects.values()} == {"lab"}
    note, *lines = done.stderr.splitlines()
    assert [line.split()[-3:] for line in lines] == [["in", "namespace", "lab"]] * 2
    assert "their timings may interfere" in note
    assert {each.scheduler["server"] for each in submissions(tmp_path)} == {cluster.server}
    assert {each.scheduler["settings"]["namespace"] for each in submissions(tmp_path)} == {"lab"}


def test_others_are_waited_for(cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = KubernetesScheduler(lambda context, namespace: cluster)  # type: ignore[arg-type, return-value]
    place = "suite.launch.kubernetes.launcher.KubernetesLauncher.scheduler"
    monkeypatch.setattr(place, staticmethod(lambda: scheduler))

    def fail_at_once(body: dict[str, Any], dry_run: bool) -> None:
        if body["kind"] == "Job":
            failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
            body["status"] = {"conditions": [failed]}

    cluster.on_create = fail_at_once
    done = submitted(tmp_path, "--repeats", "1")
    assert done.exit_code == 1, done.output
    assert set(json.loads(done.stdout)["runs"].values()) == {"failed"}
    assert "Failed: Job: Failed, DeadlineExceeded" in done.stderr
