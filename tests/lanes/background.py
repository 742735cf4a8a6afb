"""A command that runs beside something else; what it prints is shown in one piece when it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def in_background(command: list[str], log: Path) -> Iterator[Callable[[], int]]:
    """What the block gets waits for the command, and returns its exit code. Where it still runs at the block's end, it
    is killed, with all that it started in its session."""
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def wait() -> int:
        process.wait()
        sys.stdout.write(log.read_text(errors="replace"))
        return process.returncode

    try:
        yield wait
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
