"""Output, however it was carried, becomes each rank's events again."""

import contextlib
import io
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.launch.cluster.ending import read_streams
from suite.launch.cluster.launcher import Stream
from suite.worker.events import EventLog


def line(rank: int, seq: int, **fields: object) -> bytes:
    event = {"kind": "phase", "rank": rank, "time": 1.0, "seq": seq, **fields}
    return b"::suite:: " + json.dumps(event).encode() + b"\n"


def read(*lines: bytes, ranks: int = 2):
    return read_streams([Stream("node-0", lines, (0, 1))], ranks)


def seqs(lines: list[bytes]) -> list[int]:
    return [json.loads(text)["seq"] for text in lines]


@settings(max_examples=40)
@given(order=st.permutations(range(12)), twice=st.sets(st.integers(0, 11)))
def test_events_are_in_order_and_once_however_they_came(order: list[int], twice: set[int]) -> None:
    lines = [line(index % 2, index // 2) for index in (*order, *sorted(twice))]
    transcript = read(*lines)
    assert {rank: seqs(found) for rank, found in transcript.events.items()} == {0: list(range(6)), 1: list(range(6))}
    assert transcript.notes == []


def test_what_is_no_event_is_log_also_where_one_comes_behind_an_unfinished_line() -> None:
    texts = [b"hello\n", b"::suite:: {half\n", b"::suite:: [1]\n", b"\xff\xfe\n", b"::suite::\n"]
    transcript = read(*texts, line(0, 0), b"loading 50 %" + line(1, 0), b'::suite:: {"kind":"batch","time":1}\n')
    assert transcript.own == [{"kind": "batch", "time": 1}], "what the batch script tells is kept apart"
    assert transcript.logs == {"node-0": [*texts, b"loading 50 %\n"]}
    assert (seqs(transcript.events[0]), seqs(transcript.events[1])) == ([0], [0])


def test_what_follows_a_gap_is_left_out_and_said() -> None:
    transcript = read(line(0, 0), line(0, 1), line(0, 3), line(0, 4))
    assert seqs(transcript.events[0]) == [0, 1]
    assert transcript.notes == ["rank 0: event 2 is missing from the output; 2 that follow it were left out"]


@pytest.mark.parametrize("rank", [2, -1, None, "0", True, 0.0])
def test_an_event_of_no_rank_of_the_run_is_left_out_and_said(rank: object) -> None:
    body = json.dumps({"kind": "phase", "rank": rank, "seq": 0}).encode()
    transcript = read(b"::suite:: " + body + b"\n")
    assert transcript.events == {}
    assert len(transcript.notes) == 1


@settings(max_examples=40)
@given(text=st.text(max_size=3000), rank=st.integers(0, 1))
def test_a_long_event_comes_in_short_lines_and_is_whole_again(tmp_path_factory, text, rank):
    folder = tmp_path_factory.mktemp("events")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        log = EventLog(str(folder), rank, mirror=True, in_pieces=True)
        log.emit("environment", facts={"text": text})
        log.close()
    printed = output.getvalue().encode().splitlines(keepends=True)
    assert all(len(part) <= 1000 for part in printed)
    written = Path(folder, "events", f"rank-{rank}.jsonl").read_bytes().splitlines(keepends=True)
    assert read(*random.Random(0).sample(printed, len(printed))).events[rank] == written
    if len(printed) > 1:
        assert read(*printed[:-1]).events == {}, "an event that lacks a piece is missing"


@pytest.mark.parametrize(
    "piece",
    [
        b'{"kind":"piece","rank":0,"seq":0,"part":[0],"parts":1,"text":"{}"}',
        b'{"kind":"piece","rank":0,"seq":0,"part":0,"parts":99999999999,"text":"{}"}',
        b'{"kind":"piece","rank":0,"seq":0,"part":0,"parts":[1],"text":"{}"}',
        b'{"kind":"piece","rank":0,"seq":0,"part":0,"parts":1,"text":"{\\"kind\\":\\"\\ud800\\"}"}',
    ],
)
def test_pieces_that_cannot_be_joined_make_no_event(piece: bytes) -> None:
    assert read(b"::suite:: " + piece + b"\n").events == {}


def test_two_processes_that_say_they_are_one_rank_are_not_mixed() -> None:
    first = [b'::suite:: {"kind":"a","rank":0,"seq":%d,"time":1}\n' % seq for seq in range(3)]
    second = [b'::suite:: {"kind":"a","rank":0,"seq":%d,"time":%d}\n' % (seq, min(seq, 1)) for seq in range(5)]
    transcript = read(*first, *second)
    assert transcript.events == {0: []}
    assert transcript.notes == ["rank 0: event 0 came twice and not alike; it and what follows was left out"]


def test_an_event_that_comes_twice_in_another_spelling_counts_once() -> None:
    transcript = read(b'::suite:: {"kind":"a","rank":0,"seq":0}\n', b'::suite:: {"rank": 0, "kind": "a", "seq": 0}\n')
    assert (len(transcript.events[0]), transcript.notes) == (1, [])
