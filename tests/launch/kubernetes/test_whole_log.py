"""A pod's log comes whole, also where answers break off, in whatever pieces they come."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.launch.cluster.scheduler import Unanswered
from suite.launch.kubernetes import kept as module
from suite.launch.kubernetes.client import Refused
from suite.launch.kubernetes.kept import whole_log
from suite.launch.kubernetes.pods import Pod

POD = Pod("pod", "node", 0, "Succeeded", {"spec": {"containers": [{"name": "suite"}]}})


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

    def log_from(self, pod: str, container: str, since: str | None) -> Iterator[bytes]:
        if self.gone_after is not None and len(self.asked) >= self.gone_after:
            raise Refused("no such pod", 404, "not found")
        self.asked.append(since)
        text, is_whole = self.answer(since)
        yield from (text[start : start + self.piece] for start in range(0, len(text), self.piece))
        if not is_whole:
            raise Unanswered("it breaks off")


def of_seconds(texts: list[bytes], each: int = 3) -> list[tuple[str, bytes]]:
    """So many lines within each second."""
    return [(f"2026-11-22T00:00:{index // each:02d}.{index % each}", text) for index, text in enumerate(texts)]


LINES = [b"line %d\r of a log\n" % number for number in range(40)]
WHOLE = b"".join(LINES)


def read(node: Node) -> bytes:
    with TemporaryDirectory() as folder:
        return whole_log(node, Path(folder) / "run.kept", POD)  # type: ignore[arg-type]


@pytest.mark.parametrize(("breaks", "zone", "answers"), [([], "Z", 1), ([500, 300, 0], "+05:30", 4)])
def test_an_answer_that_breaks_off_is_gone_on_with_from_its_last_second(breaks, zone, answers):
    node = Node(of_seconds(LINES), breaks)
    node.zone = zone
    assert read(node) == WHOLE
    assert len(node.asked) == answers and node.asked[0] is None and None not in node.asked[1:]
    node.lines.append(("2026-11-22T01:00:00.5", b"half a line"))
    assert read(node) == WHOLE + b"half a line"


@given(breaks=st.lists(st.integers(600, 1500), max_size=12), piece=st.integers(1, 200), each=st.integers(1, 5))
def test_no_line_is_lost_or_doubled_wherever_answers_break_off(breaks: list[int], piece: int, each: int) -> None:
    node = Node(of_seconds(LINES, each), list(breaks))
    node.piece = piece
    assert read(node) == WHOLE


def test_two_streams_a_moment_out_of_order_lose_nothing() -> None:
    lines = of_seconds(LINES)
    lines[7], lines[11] = (lines[11][0], lines[7][1]), (lines[7][0], lines[11][1])
    assert read(Node(lines, [280, 330, 400])) == WHOLE


def test_answers_that_bring_nothing_new_are_given_up() -> None:
    node = Node(of_seconds(LINES), [500] + [0] * 20)
    with pytest.raises(Unanswered, match="breaks off"):
        read(node)
    assert len(node.asked) == 1 + module.MOST_BROKEN


def test_a_pod_that_goes_while_it_is_read_keeps_what_it_said() -> None:
    node = Node(of_seconds(LINES), [500])
    node.gone_after = 1
    found = read(node)
    assert found.count(b"\n") > 8 and WHOLE.startswith(found)
    node.gone_after = 0
    assert read(node) == b"", "what never started printed nothing"


def test_a_log_without_end_is_read_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_AT_END_BYTES", 100)
    text = read(Node(of_seconds(LINES)))
    assert text.endswith(b"suite: the log goes on, and was not read any further\n")
    assert len(text) < 300


@pytest.mark.parametrize("moment", ["no moment", "0001-01-01T00:00:00.5", "2026-99-99T00:00:00.5"])
def test_a_node_that_tells_no_moments_is_read_from_the_beginning_again(moment: str) -> None:
    lines = [(moment, text) for text in LINES]
    assert read(Node(lines)).count(b"line") == read(Node(lines, [500])).count(b"line") == len(LINES)
