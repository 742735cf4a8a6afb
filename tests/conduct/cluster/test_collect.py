"""Waiting for a run that a cluster has, and from what came back of it to a bundle that verifies."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.bundle.verify import verify
from suite.conduct.cluster import standing as clusters
from suite.conduct.cluster.standing import collect, wait_until_over
from suite.conduct.running.execute import make_job
from suite.launch.cluster.launcher import Gathered, SchedulerEnd, SchedulerState, Stream
from suite.launch.cluster.submission import FOLDER, Submission
from suite.launch.job import Site
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from tests.synthetic import as_lines, rank_events, synthetic_manifest

BEGAN = 1_700_000_000.0
FORGOTTEN = SchedulerEnd(status=None)


def submission(manifest: Manifest) -> Submission:
    job = make_job(manifest, Site(python="python", bundle=".", python_path="/suite"))
    return Submission(
        launcher="slurm", manifest=manifest, job=job, environment={"launcher": "slurm", "host": {}}, submitted=BEGAN
    )


def test_a_path_that_a_user_gives_comes_after_the_suites_by_which_ranks_find_their_worker() -> None:
    given = Site(python="python", bundle=".", python_path="/suite", env={"PYTHONPATH": "/mine", "A": "b"})
    job = make_job(synthetic_manifest(), given)
    assert (job.env["PYTHONPATH"], job.env["A"]) == ("/suite:/mine", "b")


def printed(manifest: Manifest, ranks: Sequence[int]) -> list[bytes]:
    texts = [as_lines(rank_events(manifest, rank, lambda iteration, rank: 1.0)) for rank in ranks]
    return [b"::suite:: " + line for text in texts for line in text.encode().splitlines(keepends=True)]


def gathered(
    manifest: Manifest, end: SchedulerEnd | None = None, own: list[bytes] | None = None, **changed: list[bytes]
) -> Gathered:
    """Every node's output, or that which is given for it, and the scheduler's own."""
    per_node = manifest.layout.devices_per_node
    streams = [] if own is None else [Stream("slurm", own)]
    for node in range(manifest.layout.nodes):
        ranks = tuple(range(node * per_node, (node + 1) * per_node))
        lines = changed.get(f"node_{node}") or printed(manifest, ranks)
        streams.append(Stream(f"node-{node}", lines, ranks))
    return Gathered(tuple(streams), end or SchedulerEnd(status="ok", started=BEGAN, ended=BEGAN + 60))


def collected(root: Path, manifest: Manifest, back: Gathered) -> Record:
    record = collect(root, submission(manifest), back)
    assert verify(Bundle(root / manifest.run.id)).status == "equal"
    assert [path.name for path in (root / FOLDER).iterdir() if path.name.startswith(".")] == []
    return record


@pytest.fixture
def manifest() -> Manifest:
    return synthetic_manifest(layout=Layout(nodes=2, devices_per_node=2, data=4))


def test_a_run_that_came_back_whole_is_a_bundle_like_any_other(tmp_path: Path, manifest: Manifest) -> None:
    record = collected(tmp_path, manifest, gathered(manifest))
    assert (record.status, record.run.launcher, record.run.ranks) == ("ok", "slurm", 4)
    assert (record.run.started, record.run.ended) == (BEGAN, BEGAN + 60)
    assert record.throughput is not None
    with pytest.raises(UsageError, match="cannot write"):
        collect(tmp_path, submission(manifest), gathered(manifest))


def test_a_scheduler_that_has_forgotten_leaves_the_times_to_the_output_and_what_never_began_is_a_bundle(
    tmp_path, manifest
):
    own = [b'::suite:: {"kind":"batch","time":100}\n', b'::suite:: {"kind":"batch_end","exit_code":0,"time":130}\n']
    record = collected(tmp_path, manifest, gathered(manifest, FORGOTTEN, own))
    assert (record.status, record.run.started, record.run.ended) == ("ok", 100.0, 130.0)
    record = collected(tmp_path / "never", manifest, Gathered((), SchedulerEnd(status="interrupted")))
    assert (record.status, record.run.started) == ("interrupted", BEGAN)


@pytest.mark.parametrize("time", ["1" * 400, "1e999", "NaN", "-5", "true"])
def test_times_that_no_clock_shows_are_not_taken_from_the_output(tmp_path: Path, manifest: Manifest, time: str) -> None:
    own = [b'::suite:: {"kind":"batch","time":%s}\n' % time.encode()]
    record = collected(tmp_path, manifest, gathered(manifest, FORGOTTEN, own))
    assert (record.status, record.run.started) == ("ok", BEGAN)


def test_output_that_is_of_no_such_run_leaves_a_line_and_no_bundle(tmp_path: Path, manifest: Manifest) -> None:
    another = printed(synthetic_manifest(layout=manifest.layout, iterations=3), (0, 1))
    at_no_time = b'::suite:: {"kind":"end","rank":0,"seq":0,"status":"failed","time":%s}\n' % (b"9" * 400)
    for lines, words in ((another, "events of another run"), ([at_no_time], "time is 9")):
        with pytest.raises(DamagedBundle, match=words):
            collect(tmp_path, submission(manifest), gathered(manifest, node_0=lines))
        assert os.listdir(tmp_path / FOLDER) == []
        assert not (tmp_path / manifest.run.id).exists()


RUNNING, OVER = SchedulerState(phase="running", word="RUNNING"), SchedulerState(phase="over", word="COMPLETED")


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Wait for a run of a cluster that gives one answer after another, text as a refusal; the words that were seen."""

    def wait(*answers: SchedulerState | str) -> list[str]:
        scheduler = Mock()
        scheduler.look.side_effect = [UsageError(each) if isinstance(each, str) else each for each in answers]
        monkeypatch.setattr(clusters, "find_scheduler", lambda name: scheduler)
        seen: list[SchedulerState] = []
        try:
            wait_until_over(tmp_path, submission(synthetic_manifest()), seen.append, poll_seconds=0.001)
        finally:
            assert scheduler.look.call_count == len(answers)
        return [now.line for now in seen]

    return wait


def test_a_controller_that_is_busy_for_a_while_does_not_end_the_wait(waited: Any) -> None:
    seen = waited(RUNNING, "Socket timed out", "Socket timed out", RUNNING, OVER)
    assert seen == ["RUNNING", "no answer Socket timed out", "RUNNING", "COMPLETED"]


def test_a_cluster_that_cannot_be_asked_at_all_is_told_at_once_and_patience_ends(waited, monkeypatch):
    with pytest.raises(UsageError, match="there is no Slurm here"):
        waited("there is no Slurm here")
    monkeypatch.setattr(clusters, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(UsageError, match="away"):
        waited(RUNNING, "away")
