"""Logs that become too large keep their beginning and their end, while ranks go on writing into them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from suite.launch import logs
from suite.launch.logs import LogLimit
from tests.launch.ranks import STERN, run


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FIRST_BYTES", 100)
    monkeypatch.setattr(logs, "LAST_BYTES", 100)
    monkeypatch.setattr(logs, "MOST_BYTES", 1000)


def test_a_log_that_is_cut_again_and_again_says_how_much_is_missing(tmp_path: Path) -> None:
    log, limit = tmp_path / "rank-1.log", LogLimit()
    lines = [b"line %05d\n" % number for number in range(1000)]
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for start in range(0, 1000, 100):
        for line in lines[start : start + 100]:
            os.write(descriptor, line)
        limit.hold([log])
    os.close(descriptor)
    kept = log.read_bytes()
    first, cut, last = re.split(rb"\n\[suite: (\d+) bytes were cut here;.*\n", kept)
    whole = b"".join(lines)
    assert whole.startswith(first) and len(first) == 100
    assert whole.endswith(last) and 90 <= len(last) <= 100
    assert int(cut) == len(whole) - len(first) - len(last)


def test_a_small_log_and_none_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_bytes(b"x" * 1000)
    os.mkfifo(tmp_path / "rank-1.log")
    LogLimit().hold([tmp_path / f"rank-{rank}.log" for rank in range(3)])
    assert (tmp_path / "rank-0.log").read_bytes() == b"x" * 1000


def test_what_silent_ranks_print_is_no_sign_of_life_and_is_told(tmp_path: Path) -> None:
    script = 'while True:\n    print("still waiting", file=sys.stderr, flush=True)\n    time.sleep(0.1)'
    ran = run(tmp_path, f'event("phase", phase="train", iteration=0)\n{script}', patience=STERN, passing={"phase": 200})
    assert ran.outcome.failure.kind == "hang"
    assert ran.outcome.failure.evidence[1].startswith("rank 0 wrote to its log ")
