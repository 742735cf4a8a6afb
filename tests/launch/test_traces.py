"""Reading what ranks left behind, whatever state it is in."""

from __future__ import annotations

import json
import os
import tracemalloc
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.launch.traces import LONGEST_LINE, TAIL_BYTES, log_size, log_tail, read_reports, stack_lines


def test_failures_are_read_around_torn_and_foreign_lines(tmp_path):
    file = tmp_path / "rank-0.jsonl"
    failure = {
        "kind": "failure",
        "time": 5.5,
        "failure": "disk_full",
        "phase": "train",
        "iteration": 1,
        "evidence": ["x"],
    }
    file.write_text(
        "\n".join(
            ["null", "[]", '{"start"', json.dumps({"kind": "start"}), json.dumps(failure), '{"kind": "failure", "ti']
        )
    )
    found = read_reports(file)
    assert found.started
    assert len(found.reports) == 1
    assert found.reports[0].time == 5.5
    assert found.reports[0].failure.model_dump() == {
        "kind": "disk_full",
        "phase": "train",
        "iteration": 1,
        "evidence": ("x",),
    }


def test_a_rank_without_an_event_file_told_nothing(tmp_path):
    assert read_reports(tmp_path / "rank-9.jsonl") == (False, (), None)
    assert log_tail(tmp_path / "rank-9.log") == ()
    assert log_size(tmp_path / "rank-9.log") == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(JSON, JSON, JSON, JSON, JSON)
def test_a_failure_event_of_any_content_is_taken_without_trust(
    tmp_path_factory, kind, time, phase, iteration, evidence
):
    file = tmp_path_factory.mktemp("events") / "rank-0.jsonl"
    event = {
        "kind": "failure",
        "failure": kind,
        "time": time,
        "phase": phase,
        "iteration": iteration,
        "evidence": evidence,
    }
    file.write_text(json.dumps(event) + "\n")
    assert len(read_reports(file).reports) == 1


def test_the_tail_of_a_huge_log_is_short_and_its_lines_are_cut(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"early\n" + b"x" * TAIL_BYTES * 2 + b"\n\xff last\n\n")
    lines = log_tail(log)
    assert lines == ("x" * LONGEST_LINE, "\N{REPLACEMENT CHARACTER} last")
    assert log_tail(log, log_size(log) - 6) == ("last",)


def test_of_a_dump_the_running_thread_is_kept():
    dump = (
        "Thread 0x1 (most recent call first):",
        "  File a",
        "Current thread 0x2 (most recent call first):",
        "  File b",
    )
    assert stack_lines(dump, 10) == dump[2:]
    assert stack_lines(dump[:2], 1) == dump[:1]


def test_what_no_float_and_no_file_can_hold_is_read_all_the_same(tmp_path):
    file = tmp_path / "rank-0.jsonl"
    failure = {"kind": "failure", "time": 10**400, "failure": "hang", "phase": "\ud800", "evidence": ["a\udfff"]}
    file.write_text(json.dumps(failure))
    (report,) = read_reports(file).reports
    assert (report.time, report.failure.phase, report.failure.evidence) == (0.0, "?", ("a?",))


@pytest.mark.parametrize("trap", ["link", "pipe", "folder"])
def test_what_is_no_file_is_told_and_not_read(tmp_path, trap):
    """It could be /dev/zero, or a pipe that nobody ever writes into."""
    for name in ("rank-0.jsonl", "rank-0.log"):
        path = tmp_path / name
        make = {"link": partial(path.symlink_to, "/dev/zero"), "pipe": partial(os.mkfifo, path), "folder": path.mkdir}
        make[trap]()
    said = "is a symbolic link" if trap == "link" else "is not a regular file"
    assert read_reports(tmp_path / "rank-0.jsonl") == (False, (), f"events/rank-0.jsonl {said}")
    assert log_tail(tmp_path / "rank-0.log") == (f"logs/rank-0.log {said}: it was not read",)
    assert log_size(tmp_path / "rank-0.log") == 0


def test_of_files_of_any_size_a_bounded_part_is_read(tmp_path):
    failure = json.dumps({"kind": "failure", "time": 1.0, "failure": "hang", "evidence": []}).encode()
    for name in ("rank-0.jsonl", "rank-0.log"):
        with (tmp_path / name).open("wb") as file:
            file.write(b'{"kind": "start"}\n')
            file.seek(6 << 30)
            file.write(b"\n" + failure + b"\n")
    tracemalloc.start()
    found = read_reports(tmp_path / "rank-0.jsonl")
    assert (found.started, [report.failure.kind for report in found.reports]) == (True, ["hang"])
    assert log_tail(tmp_path / "rank-0.log")[-1] == failure.decode()
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_a_flood_of_reports_is_not_taken_whole(tmp_path):
    file = tmp_path / "rank-0.jsonl"
    file.write_bytes(b'{"kind": "failure", "evidence": [[[]]], "iteration": -1}\n' * 10_000)
    reports = read_reports(file).reports
    assert len(reports) == 100
    assert reports[0].failure.iteration is None
