"""Where a rank's trainer, and all processes that it starts, write what they need by the way: a folder of the run's own.

Sockets, lock files, models and caches go there and end with it, however the rank ends; a home that cannot be written is
not asked for.
"""

import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from typing import Any, List, Sequence

#: where the package ``suite`` lies, for processes that start in another folder
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
#: below it lie sockets of Ray, whose whole path may have 107 characters
_LONGEST_PARENT = 20
_USUAL_PARENT = "/tmp"
_END_SECONDS = 20.0
#: nothing is asked of a hub, and nothing reported home
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_MODE": "disabled",
}
#: whose standard input this process holds open
_GUARDIANS: List["Guarded"] = []


@lru_cache(maxsize=1)
def use_own_folder() -> str:
    """The folder of this process: made when first asked for, and used from then on, also for Hugging Face's caches."""
    usual = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="suite-", dir=usual if len(usual) <= _LONGEST_PARENT else _USUAL_PARENT)
    guard(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ.update(_OFFLINE)
    os.environ["HF_HOME"] = os.path.join(folder, "huggingface")
    os.environ["HF_DATASETS_CACHE"] = os.path.join(folder, "datasets")
    return folder


def guard(paths: str) -> "Guarded":
    """Have ``paths`` removed with this run, however the rank ends."""
    _GUARDIANS.append(Guarded(paths))
    return _GUARDIANS[-1]


def give_back() -> None:
    """Have what was made here removed now, and wait for it: the run is over."""
    while _GUARDIANS:
        _GUARDIANS.pop().close()


class Guarded:
    """A command below a guardian (see there), which ends all that it starts as soon as this process does, or ``close``
    is called, and then removes ``paths``. Without a command it does the latter alone."""

    def __init__(self, paths: str, command: Sequence[str] = (), **options: Any) -> None:
        """``options`` of ``Popen``: where the output goes; the environment."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "suite.worker.trainers.guardian", paths, *command],
            stdin=subprocess.PIPE,
            start_new_session=True,
            **{"stdout": subprocess.DEVNULL, **options},
        )
        self.pid = self.process.pid

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
