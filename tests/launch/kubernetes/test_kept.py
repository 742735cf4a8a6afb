"""What pods print is kept while somebody waits and comes whole, whatever is cut away, deleted, or breaks off."""

import fcntl
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.launch.cluster.launcher import Unanswered
from suite.launch.kubernetes import kept
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

    def keep(self, pod: Pod = POD) -> bytes:
        kept.keep_printed(self.cluster, self.spool, pod)
        return kept.read_kept(self.spool, pod.stream)

    def end(self, pod: Pod = POD) -> bytes:
        kept.end_of_printed(self.cluster, self.spool, pod)
        return kept.read_kept(self.spool, pod.stream)


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
    ((_, path),) = kept.kept_streams(watched.spool)
    path.write_bytes(path.read_bytes()[:-3])
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert watched.keep() == b"".join(LINES[:4])[:-3]
    assert watched.keep() == b"".join(LINES[:4])


def test_a_name_that_is_no_streams_makes_no_file_and_another_attempt_begins_with_nothing(watched, tmp_path):
    watched.prints(2)
    with pytest.raises(UsageError, match="names a pod whose output is called"):
        watched.keep(POD._replace(role="../../elsewhere"))
    assert not list(tmp_path.rglob("*elsewhere*"))
    for node in (10, 0):
        watched.keep(POD._replace(number=node))
    assert [name for name, _ in kept.kept_streams(watched.spool)] == ["node-0", "node-10"], "in their order"
    kept.forget_kept(watched.spool)
    assert kept.kept_streams(watched.spool) == []
    assert kept.read_kept(watched.spool, "node-0") == b""


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", '{"logs": []}', '{"logs": {"a": 1}}', "[" * 100_000, "\u00e9"])
def test_a_damaged_one_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "kept.json").write_text(text)
    with pytest.raises(UsageError, match="cannot be used"):
        kept.read_snapshot(tmp_path / "kept.json")


class Node:
    """What a kubelet keeps of a container, and after how many bytes each answer breaks off (null: none does)."""

    def __init__(self, lines: list[tuple[str, bytes]], breaks: list[int | None] | None = None) -> None:
        self.lines, self.breaks = lines, breaks or []
        self.asked: list[str | None] = []
        self.piece = 7
        self.zone = "Z"
        self.gone_after: int | None = None

    def answer(self, since: str | None) -> tuple[bytes, bool]:
        """All from a second on, and whether it is all."""
        assert since is None or since[19:] == self.zone
        whole = b"".join(
            f"{moment}{self.zone} ".encode() + text
            for moment, text in self.lines
            if since is None or moment[:19] >= since[:19]
        )
        end = self.breaks.pop(0) if self.breaks else None
        return (whole, True) if end is None or end >= len(whole) else (whole[:end], False)

    def log(self, pod: str, container: str, since: str | None) -> Iterator[bytes]:
        if self.gone_after is not None and len(self.asked) >= self.gone_after:
            return
        self.asked.append(since)
        text, is_whole = self.answer(since)
        yield from (text[start : start + self.piece] for start in range(0, len(text), self.piece))
        if not is_whole:
            raise Unanswered("it breaks off")


def of_seconds(texts: list[bytes], each: int = 3) -> list[tuple[str, bytes]]:
    """So many lines within each second."""
    return [(f"2026-11-22T00:00:{index // each:02d}.{index % each}", text) for index, text in enumerate(texts)]


MANY = [b"line %d\r of a log\n" % number for number in range(40)]
WHOLE = b"".join(MANY)


def read(node: Node) -> bytes:
    with TemporaryDirectory() as folder:
        return kept.whole_log(node, Path(folder) / "run.kept", POD)  # type: ignore[arg-type]


@pytest.mark.parametrize(("breaks", "zone", "answers"), [([], "Z", 1), ([500, 300, 0], "+05:30", 4)])
def test_an_answer_that_breaks_off_is_gone_on_with_from_its_last_second(breaks, zone, answers):
    node = Node(of_seconds(MANY), breaks)
    node.zone = zone
    assert read(node) == WHOLE
    assert len(node.asked) == answers and node.asked[0] is None and None not in node.asked[1:]
    node.lines.append(("2026-11-22T01:00:00.5", b"half a line"))
    assert read(node) == WHOLE + b"half a line"


@given(breaks=st.lists(st.integers(600, 1500), max_size=12), piece=st.integers(1, 200), each=st.integers(1, 5))
def test_no_line_is_lost_or_doubled_wherever_answers_break_off(breaks: list[int], piece: int, each: int) -> None:
    node = Node(of_seconds(MANY, each), list(breaks))
    node.piece = piece
    assert read(node) == WHOLE


def test_two_streams_a_moment_out_of_order_lose_nothing() -> None:
    lines = of_seconds(MANY)
    lines[7], lines[11] = (lines[11][0], lines[7][1]), (lines[7][0], lines[11][1])
    assert read(Node(lines, [280, 330, 400])) == WHOLE


def test_answers_that_bring_nothing_new_are_given_up() -> None:
    node = Node(of_seconds(MANY), [500] + [0] * 20)
    with pytest.raises(Unanswered, match="breaks off"):
        read(node)
    assert len(node.asked) == 1 + kept.MOST_BROKEN


def test_a_pod_that_goes_while_it_is_read_keeps_what_it_said() -> None:
    node = Node(of_seconds(MANY), [500])
    node.gone_after = 1
    found = read(node)
    assert found.count(b"\n") > 8 and WHOLE.startswith(found)
    node.gone_after = 0
    assert read(node) == b"", "what never started printed nothing"


def test_a_log_without_end_is_read_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 100)
    text = read(Node(of_seconds(MANY)))
    assert text.endswith(b"suite: the log goes on, and was not read any further\n")
    assert len(text) < 300


@pytest.mark.parametrize("moment", ["no moment", "0001-01-01T00:00:00.5", "2026-99-99T00:00:00.5"])
def test_a_node_that_tells_no_moments_is_read_from_the_beginning_again(moment: str) -> None:
    lines = [(moment, text) for text in MANY]
    assert read(Node(lines)).count(b"line") == read(Node(lines, [500])).count(b"line") == len(MANY)
