"""The driver as a process of its own: its cost while a run is silent, and the ranks of a driver that is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.launch.ranks import IMPORT_VARIABLE

REPOSITORY = Path(__file__).parents[2]
DRIVER = """
import json, resource, sys
from pathlib import Path
from tests.launch.ranks import run
import psutil, selectors
root, script, ranks, forked = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF)
ran = run(Path(root), script, int(ranks), forked=forked == "True")
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "status": ran.outcome.status,
    "failure": ran.outcome.failure and ran.outcome.failure.model_dump(),
    "exit_codes": ran.outcome.exit_codes,
    "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    "switches": after.ru_nvcsw - before.ru_nvcsw,
}))
"""
WAITING = """
import ctypes
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG, as the suite's worker does
event("start", pid=os.getpid())
time.sleep(60)
"""


def start_driver(root: Path, script: str, ranks: int = 1, forked: bool = False, **variables: str) -> subprocess.Popen:
    command = [sys.executable, "-c", DRIVER, str(root), script, str(ranks), str(forked)]
    env = {**os.environ, **variables}
    return subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, start_new_session=True)


def wait_for_ranks(root: Path, ranks: int) -> list[int]:
    """Process ids of the ranks, once each has written its start event."""
    files = [root / "events" / f"rank-{rank}.jsonl" for rank in range(ranks)]
    deadline = time.monotonic() + 20
    while not all(file.exists() and file.read_text().endswith("\n") for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [json.loads(file.read_text())["pid"] for file in files]


def wait_until_gone(pids: list[int]) -> None:
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(5)


def test_the_driver_waits_without_work_while_its_ranks_are_silent(tmp_path):
    with start_driver(tmp_path, 'event("start")\ntime.sleep(2)\nevent("end", status="ok")') as driver:
        result = json.loads(driver.communicate(timeout=30)[0])
    assert result["status"] == "ok"
    assert result["cpu_seconds"] < 0.06  # start and clean-up in it
    assert result["switches"] < 40


@pytest.mark.parametrize("forked", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_driver_ends_its_ranks_and_reports_an_interrupted_run(tmp_path, number, forked):
    with start_driver(tmp_path, WAITING, ranks=2, forked=forked) as driver:
        pids = wait_for_ranks(tmp_path, 2)
        driver.send_signal(number)
        result = json.loads(driver.communicate(timeout=30)[0])
    assert result["status"] == "interrupted"
    assert result["failure"]["kind"] == "interrupted"
    assert result["failure"]["evidence"] == [f"the driver was sent {number.name}"]
    assert result["exit_codes"] == {"0": -signal.SIGTERM, "1": -signal.SIGTERM}
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize("forked", [False, True])
def test_ranks_end_with_a_driver_that_is_killed(tmp_path, forked):
    with start_driver(tmp_path, WAITING, ranks=2, forked=forked) as driver:
        pids = wait_for_ranks(tmp_path, 2)
        pids += [child.pid for child in psutil.Process(driver.pid).children(recursive=True) if child.pid not in pids]
        assert len(pids) == (3 if forked else 2), "the process that ranks are forked from"
        os.kill(driver.pid, signal.SIGKILL)
    wait_until_gone(pids)
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def test_ranks_that_ask_for_nothing_end_with_a_killed_driver_too(tmp_path):
    """A foreign program is no worker of the suite's, which asks the kernel itself."""
    with start_driver(tmp_path, 'event("start", pid=os.getpid())\ntime.sleep(60)', ranks=2) as driver:
        pids = wait_for_ranks(tmp_path, 2)
        os.kill(driver.pid, signal.SIGKILL)
    wait_until_gone(pids)
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_is_stopped_while_the_stack_is_imported_leaves_nothing(tmp_path, number):
    slow = {IMPORT_VARIABLE: f"open({str(tmp_path / 'importing')!r}, 'w'); import time; time.sleep(60)"}
    with start_driver(tmp_path, WAITING, forked=True, **slow) as driver:
        wait_for_file(tmp_path / "importing")
        pids = [child.pid for child in psutil.Process(driver.pid).children(recursive=True)]
        driver.send_signal(number)
        printed = driver.communicate(timeout=30)[0]
    assert len(pids) == 1
    wait_until_gone(pids)
    assert not psutil.pid_exists(pids[0])
    if number == signal.SIGINT:
        assert json.loads(printed)["status"] == "interrupted"


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
