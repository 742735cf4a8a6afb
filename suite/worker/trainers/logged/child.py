"""The trainer's own program, started by the leading rank below a guardian, which ends all of it with the rank."""

import os
import subprocess
import sys
import threading
from typing import IO, Dict, Optional, Sequence

from suite.worker.trainers.guardian import STARTED

_END_SECONDS = 20.0
_CHUNK = 1 << 16
_LAST_BYTES = 400


class Child:
    """One program with all the processes that it starts. What they print goes to this rank's standard error, and shows
    that they work. ``pid`` is the guardian's. ``folder`` is removed at the end."""

    def __init__(self, argv: Sequence[str], environment: Dict[str, str], folder: str) -> None:
        self._guardian = subprocess.Popen(
            [sys.executable, "-m", "suite.worker.trainers.guardian", folder, *argv],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._guardian.pid
        self._signs = self._seen = 0
        self._last = b""
        self._ended_well = False
        assert self._guardian.stdout is not None and self._guardian.stderr is not None, "both are pipes"
        for work, pipe in ((self._listen, self._guardian.stdout), (self._copy, self._guardian.stderr)):
            threading.Thread(target=work, args=(pipe,), daemon=True).start()

    def has_shown_life(self) -> bool:
        """Whether anything was printed since this was last asked."""
        before, self._seen = self._seen, self._signs
        return self._seen != before

    def exit_code(self) -> Optional[int]:
        """Of the program; None while it runs."""
        return 0 if self._ended_well else self._guardian.poll()

    def last_line(self) -> str:
        """What it printed last; empty where it printed nothing."""
        lines = [line.strip() for line in self._last.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def close(self) -> None:
        """End whatever is left of it."""
        if self._guardian.stdin is not None and not self._guardian.stdin.closed:
            self._guardian.stdin.close()
        try:
            self._guardian.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._guardian.kill()
            self._guardian.wait()

    def _listen(self, pipe: IO[bytes]) -> None:
        """The guardian says so when its command has ended well, and ends itself where it has not."""
        self._ended_well = pipe.readline() == STARTED

    def _copy(self, pipe: IO[bytes]) -> None:
        while True:
            data = os.read(pipe.fileno(), _CHUNK)
            if not data:
                return
            self._signs += 1
            self._last = (self._last + data)[-_LAST_BYTES:]
            sys.stderr.write(data.decode("utf-8", "replace"))
            sys.stderr.flush()
