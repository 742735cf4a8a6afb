"""Waiting for what another process or thread does."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
#: A bound for what never comes, not for what is slow: a busy machine takes many times as long as an idle one.
SECONDS = 120.0


def wait_until(condition: Callable[[], T], seconds: float = SECONDS, told: Callable[[], object] = lambda: "") -> T:
    """The first true value of ``condition``; fails with what ``told`` says where none came in ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it never came: {told()}"
        time.sleep(0.05)
    return value


def answering(process: subprocess.Popen[bytes], log: Path, answers: Callable[[], object], seconds: float) -> None:
    """Until a program that was started answers. Raises RuntimeError with the end of its log where it does not."""
    deadline = time.monotonic() + seconds
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{log.name} does not answer: {log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)


def logged(command: Sequence[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """A program in a session of its own, whose output is added to ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, **options)


def ended(process: subprocess.Popen[bytes] | None, seconds: float = SECONDS) -> None:
    """A program is told to end, and killed where it does not."""
    if process is not None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
