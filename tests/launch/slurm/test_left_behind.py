"""What a task leaves on its node where it cannot tidy up after itself, and who removes it."""

import fcntl
import os
import subprocess
import time
from pathlib import Path

import pytest

from suite.launch.slurm.settings import SlurmSettings
from tests.launch.slurm.test_script import script_of, tools
from tests.waiting import wait_until

__all__ = ["tools"]
KILLED = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The node's folder for temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def run_job(tools: Path, scratch: Path, code: str = "", **settings: object) -> int:
    """The exit code of a batch script whose one rank is a few lines of Python."""
    script = script_of(code, how=SlurmSettings(starter="srun", **settings))
    job = {"SLURM_JOB_ID": "71", "SLURM_JOB_NODELIST": "n1", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"}
    environment = {**job, "PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(scratch)}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, timeout=110).returncode


def left_by(scratch: Path, name: str, minutes: float) -> Path:
    """A folder of a task that ended so long ago."""
    folder = scratch / name
    folder.mkdir()
    (folder / "manifest.json").touch()
    then = time.time() - 60 * minutes
    os.utime(folder, (then, then))
    return folder


@pytest.mark.parametrize("settings", [{}, {"hint": "nomultithread"}], ids=["", "with a hint"])
def test_a_job_removes_what_a_task_that_was_killed_at_once_left(tools: Path, scratch: Path, settings: dict) -> None:
    others = left_by(scratch, "suite.72.abcdefgh", 0)
    assert run_job(tools, scratch, KILLED, **settings) == 137
    assert list(scratch.iterdir()) == [others], "and nothing of another job"


def test_what_a_killed_job_left_is_removed_by_the_next_task_on_its_node(tools: Path, scratch: Path) -> None:
    left_by(scratch, "suite.7.abcdefgh", 3)
    fresh = left_by(scratch, "suite.8.abcdefgh", 1)
    others = [left_by(scratch, name, 3) for name in ("suite.abcdefgh", "suite.1.abc", "other.1.abcdefgh")]
    in_use = left_by(scratch, "suite.9.abcdefgh", 3)
    held = os.open(in_use, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # as all hold it that run in it
    assert run_job(tools, scratch) == 0
    os.close(held)
    assert set(scratch.iterdir()) == {fresh, in_use, *others}


def test_a_rank_holds_its_folder_also_when_the_shell_around_it_is_gone(tools: Path, scratch: Path) -> None:
    code = (
        "import fcntl, os, signal, sys\n"
        "place = os.open('.', os.O_RDONLY)\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n"
        "try:\n    fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        f"except BlockingIOError:\n    open({str(scratch / 'held')!r}, 'w').close()\n"
    )
    run_job(tools, scratch, code)
    wait_until((scratch / "held").exists)
