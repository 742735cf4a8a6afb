"""What pods print is kept while somebody waits, whatever their node cuts away or their controller deletes."""

import fcntl
from pathlib import Path

import pytest

from suite.launch.kubernetes.client import Cluster
from suite.launch.kubernetes.kept import (
    end_of_printed,
    forget_kept,
    keep_printed,
    kept_streams,
    read_kept,
    read_snapshot,
)
from suite.launch.kubernetes.pods import Pod
from suite.spec.base import UsageError
from tests.launch.kubernetes.memory import MemoryCluster

#: not followed, unless a test says that it runs
POD = Pod("run-0-x", "node", 0, "Succeeded", {"spec": {"containers": [{"name": "suite"}]}})
LINES = [b"line %d\n" % number for number in range(9)]


class Watched:
    """A pod whose lines come one after the other."""

    def __init__(self, folder: Path) -> None:
        self.cluster = MemoryCluster()
        self.spool = folder / ".submitted" / "run.kept"

    def prints(self, count: int, then: bytes = b"") -> None:
        self.cluster.logs[POD.name] = b"".join(LINES[:count]) + then

    def keep(self, pod: Pod = POD) -> bytes | None:
        keep_printed(self.as_cluster, self.spool, pod)
        return read_kept(self.spool, pod.stream)

    def end(self, pod: Pod = POD) -> bytes | None:
        end_of_printed(self.as_cluster, self.spool, pod)
        return read_kept(self.spool, pod.stream)

    @property
    def as_cluster(self) -> Cluster:
        return self.cluster  # type: ignore[return-value]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_every_line_is_kept_once_unless_the_node_cut_it_before_it_was_seen(watched: Watched) -> None:
    watched.prints(3)
    for _ in range(2):
        assert watched.keep() == b"".join(LINES[:3])
    watched.prints(6)
    watched.cluster.cut[POD.name] = 2  # the last line that is kept is still there
    assert watched.keep() == b"".join(LINES[:6])
    watched.prints(9)
    watched.cluster.cut[POD.name] = 8
    assert watched.keep() == b"".join(LINES[:6] + LINES[8:])
    watched.cluster.cut[POD.name] = 9
    assert watched.keep() == b"".join(LINES[:6] + LINES[8:])


def test_a_pod_that_runs_is_followed_over_the_cuts_of_its_log(watched: Watched) -> None:
    watched.prints(3)
    watched.cluster.comes[POD.name] = [b"2026-11-22T00:00:07.5Z line 7\n", b"2026-11-22T00:00:08.5Z line 8\n"]
    running = POD._replace(phase="Running")
    watched.keep(running)
    watched.cluster.cut[POD.name] = 3
    assert watched.end(running) == b"".join(LINES[:3] + LINES[7:])


def test_half_a_line_waits_for_its_other_half_or_for_the_end(watched: Watched) -> None:
    watched.prints(2, b"half")
    assert watched.keep() == b"".join(LINES[:2])
    assert watched.end() == b"".join(LINES[:2]) + b"half"
    watched.prints(2, b"half a line\n")
    assert watched.keep() == b"".join(LINES[:2]) + b"half a line\n"


def test_what_a_killed_driver_left_of_a_line_is_read_again_and_two_do_not_write_it_twice(watched: Watched) -> None:
    watched.prints(4)
    watched.keep()
    ((_, path),) = kept_streams(watched.spool)
    path.write_bytes(path.read_bytes()[:-3])
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert watched.keep() == b"".join(LINES[:4])[:-3]
    assert watched.keep() == b"".join(LINES[:4])


def test_a_name_that_is_no_streams_makes_no_file_and_another_attempt_begins_with_nothing(watched, tmp_path):
    watched.prints(2)
    assert watched.keep(POD._replace(role="../../elsewhere")) is None
    assert not list(tmp_path.rglob("*elsewhere*"))
    watched.keep()
    forget_kept(watched.spool)
    assert kept_streams(watched.spool) == []
    assert read_kept(watched.spool, "node-0") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", '{"logs": []}', '{"logs": {"a": 1}}', "[" * 100_000, "\u00e9"])
def test_a_damaged_one_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "kept.json").write_text(text)
    with pytest.raises(UsageError, match="cannot be used"):
        read_snapshot(tmp_path / "kept.json")
