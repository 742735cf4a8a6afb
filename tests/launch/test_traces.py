"""Reading what ranks left behind, whatever state it is in."""

import json
import os
import tracemalloc
from functools import partial

import pytest

from suite.launch import traces


def reported(**fields: object) -> bytes:
    return json.dumps({"kind": "failure", "time": 5.5, "failure": "hang", "evidence": ["x"], **fields}).encode()


def test_failures_are_read_around_torn_and_foreign_lines(tmp_path):
    file = tmp_path / "rank-0.jsonl"
    lines = [b"null", b"[]", b'{"start"', b'["start"]', b'{"kind": "start"}', reported(phase="train", iteration=1)]
    file.write_bytes(b"\n".join([*lines, b"[" * 9999 + b'"failure"', b'{"kind": "failure", "ti']))
    found = traces.read_reports(file)
    ((time, failure),) = found.reports
    assert (found.started, time) == (True, 5.5)
    assert failure.model_dump() == {"kind": "hang", "phase": "train", "iteration": 1, "evidence": ("x",)}


@pytest.mark.parametrize(
    ("told", "taken"),
    [
        ({"time": 10**400, "phase": "\ud800", "evidence": ["a\udfff"]}, (0.0, "?", None, ("a?",))),
        ({"time": "5", "phase": 5, "iteration": -1, "evidence": "x"}, (0.0, None, None, ())),
        ({"iteration": 1 << 31, "evidence": ["x"] * 41}, (5.5, None, None, ("x",) * 40)),
        ({"iteration": 0, "phase": "p" * 81, "evidence": [["x"]]}, (5.5, "p" * 80, 0, ("['x']",))),
        ({"iteration": True, "evidence": ["x" * 501]}, (5.5, None, None, ("x" * 500,))),
    ],
    ids=["no float and no text", "other types", "beyond all bounds", "too long a name", "a truth"],
)
def test_what_nobody_can_use_of_a_failure_is_left_out(told, taken):
    ((time, failure),) = traces.parse_reports([reported(**told)]).reports
    assert (time, failure.phase, failure.iteration, failure.evidence) == taken


def test_the_tail_of_a_huge_log_is_short_and_its_lines_are_cut(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"early\n" + b"x" * traces.TAIL_BYTES * 2 + b"\n\xff last\n\n")
    lines = traces.log_tail(log)
    assert lines == ("x" * traces.LONGEST_LINE, "\N{REPLACEMENT CHARACTER} last")
    assert traces.log_tail(log, traces.log_size(log) - 6) == ("last",)
    assert traces.printable_lines(b"\n  \na \n") == ("a",)


@pytest.mark.parametrize("trap", ["link", "pipe", "folder"])
def test_what_is_no_file_is_told_and_not_read(tmp_path, trap):
    """It could be /dev/zero, or a pipe that nobody ever writes into."""
    for name in ("rank-0.jsonl", "rank-0.log"):
        path = tmp_path / name
        make = {"link": partial(path.symlink_to, "/dev/zero"), "pipe": partial(os.mkfifo, path), "folder": path.mkdir}
        make[trap]()
    assert traces.read_reports(tmp_path / "rank-9.jsonl") == (False, (), None), "none at all told nothing"
    assert traces.log_tail(tmp_path / "rank-9.log") == ()
    said = "is a symbolic link" if trap == "link" else "is not a regular file"
    assert traces.read_reports(tmp_path / "rank-0.jsonl") == (False, (), f"events/rank-0.jsonl {said}")
    assert traces.log_tail(tmp_path / "rank-0.log") == (f"logs/rank-0.log {said}: it was not read",)
    assert traces.log_size(tmp_path / "rank-0.log") == 0


def test_of_files_of_any_size_a_bounded_part_is_read(tmp_path):
    for name in ("rank-0.jsonl", "rank-0.log"):
        with (tmp_path / name).open("wb") as file:
            file.write(b'{"kind": "start"}\n')
            file.seek(6 << 30)
            file.write(b"\n" + reported() + b"\n")
    tracemalloc.start()
    found = traces.read_reports(tmp_path / "rank-0.jsonl")
    assert (found.started, [report.failure.kind for report in found.reports]) == (True, ["hang"])
    assert traces.log_tail(tmp_path / "rank-0.log")[-1] == reported().decode()
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_a_flood_of_reports_is_not_taken_whole():
    assert len(traces.parse_reports([reported(evidence=[[[]]])] * 10_000).reports) == 100
    assert traces.parse_reports([b'"start"'] * 10_000 + [reported()]).reports == ()
    last = traces.parse_reports([b'"start"'] * 9_999 + [reported()])
    assert last[:2] == (False, traces.parse_reports([reported()]).reports)
