"""The driver as a process of its own, which is stopped: no rank outlives it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from tests.launch.ranks import IMPORT_VARIABLE, is_gone
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
DRIVER = """
import signal, sys
from pathlib import Path
from tests.launch.ranks import run
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests are started by nohup
root, script, ranks, forked = sys.argv[1:]
print(run(Path(root), script, int(ranks), forked=forked == "True").outcome.model_dump_json())
"""
FOREIGN = 'event("start", pid=os.getpid())\ntime.sleep(600)'
#: PR_SET_PDEATHSIG, as the suite's worker asks for
WORKER = f"import ctypes\nctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)\n{FOREIGN}"


def start_driver(root: Path, script: str, ranks: int = 1, forked: bool = False, **variables: str) -> subprocess.Popen:
    command = [sys.executable, "-c", DRIVER, str(root), script, str(ranks), str(forked)]
    env = {**os.environ, **variables}
    return subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, start_new_session=True)


def pids_of_ranks(root: Path) -> list[int]:
    """Process ids of both ranks, once each has written its start event."""
    files = [root / "events" / f"rank-{rank}.jsonl" for rank in range(2)]
    wait_until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files))
    return [json.loads(file.read_text())["pid"] for file in files]


def are_gone(pids: Iterable[int]) -> bool:
    return all(map(is_gone, pids))


@pytest.mark.parametrize("forked", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_driver_ends_its_ranks_and_reports_an_interrupted_run(tmp_path, number, forked):
    with start_driver(tmp_path, WORKER, ranks=2, forked=forked) as driver:
        pids = pids_of_ranks(tmp_path)
        driver.send_signal(number)
        result = json.loads(driver.communicate()[0])
    assert (result["status"], result["failure"]["kind"]) == ("interrupted", "interrupted")
    assert result["failure"]["evidence"] == [f"the driver was sent {number.name}"]
    assert result["exit_codes"] == {"0": -signal.SIGTERM, "1": -signal.SIGTERM}
    assert are_gone(pids)


@pytest.mark.parametrize(("script", "forked"), [(WORKER, False), (WORKER, True), (FOREIGN, False)])
def test_ranks_end_with_a_driver_that_is_killed(tmp_path, script, forked):
    """A foreign program is no worker of the suite's, which asks the kernel itself."""
    with start_driver(tmp_path, script, ranks=2, forked=forked) as driver:
        pids = pids_of_ranks(tmp_path)
        children = {child.pid for child in psutil.Process(driver.pid).children(recursive=True)}
        assert len(children | {*pids}) >= (3 if forked else 2), "the process that ranks are forked from"
        os.kill(driver.pid, signal.SIGKILL)
    wait_until(lambda: are_gone(children | {*pids}))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_is_stopped_while_the_stack_is_imported_leaves_nothing(tmp_path, number):
    slow = {IMPORT_VARIABLE: f"open({str(tmp_path / 'importing')!r}, 'w'); import time; time.sleep(600)"}
    with start_driver(tmp_path, WORKER, forked=True, **slow) as driver:
        wait_until((tmp_path / "importing").exists)
        (child,) = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(number)
        printed = driver.communicate()[0]
    wait_until(lambda: are_gone([child.pid]))
    if number == signal.SIGINT:
        assert json.loads(printed)["status"] == "interrupted"
