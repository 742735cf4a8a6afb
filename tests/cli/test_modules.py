"""The way from a command to a rank is short: how many modules of the suite a run on this machine imports."""

from __future__ import annotations

import subprocess
import sys

MOST = 78
#: as ``python -m suite``, telling at its end what was imported
PROGRAM = """
import atexit, runpy, sys
own = lambda: sorted(name for name in sys.modules if name.partition(".")[0] == "suite")
atexit.register(lambda: print(*own(), file=sys.stderr))
runpy.run_module("suite", run_name="__main__", alter_sys=True)
"""


def test_a_local_run_imports_few_modules_and_none_of_other_launchers() -> None:
    command = [sys.executable, "-c", PROGRAM, "run", "--size", "1M", "--backend", "deepspeed", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = done.stderr.split()
    assert "suite.launch.local" in found, "else nothing is proven"
    others = [name for name in found if name.startswith(("suite.launch.slurm.", "suite.launch.kubernetes."))]
    docker = {name for name in found if name.startswith("suite.launch.docker.")}
    assert not others and docker <= {"suite.launch.docker.settings"}, "only the options of containers are read"
    assert len(found) <= MOST, f"{len(found)} modules: import where it is used, or merge what is only used together"
