"""The trainer's own program as a child of the leading rank: started, watched, and ended with the run."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import IO, Dict, Optional, Sequence

_PR_SET_PDEATHSIG = 1
_TERM_SECONDS = 20.0
_CHUNK = 1 << 16


class Child:
    """A process group of its own. What it prints goes to this process's standard error, and shows that it works."""

    def __init__(self, argv: Sequence[str], environment: Dict[str, str], folder: str) -> None:
        """Raises OSError where the program cannot be started."""
        self._process = subprocess.Popen(
            list(argv),
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - prctl alone, which is safe between fork and exec
            start_new_session=True,
        )
        self._signs = 0
        self._seen = 0
        assert self._process.stdout is not None, "it is a pipe"
        self._copier = threading.Thread(target=self._copy, args=(self._process.stdout,), daemon=True)
        self._copier.start()

    def has_shown_life(self) -> bool:
        """Whether it printed anything since the last time that this was asked."""
        before, self._seen = self._seen, self._signs
        return self._seen != before

    def exit_code(self) -> Optional[int]:
        """None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> Optional[int]:
        """Its exit code, or None where it did not end in that time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """Ask its group to end, then make it; whoever of the group is left once it has ended goes too."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            self.wait(_TERM_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._copier.join(1.0)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def _copy(self, pipe: IO[bytes]) -> None:
        while True:
            data = os.read(pipe.fileno(), _CHUNK)
            if not data:
                return
            self._signs += 1
            sys.stderr.write(data.decode("utf-8", "replace"))
            sys.stderr.flush()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
