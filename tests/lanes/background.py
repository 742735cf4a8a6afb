"""Commands that run one after the other beside something else; what they print is shown in one piece when they end."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType


class Background:
    """Starts with the block. Whatever still runs at its end is killed, with all that it started in its session."""

    def __init__(self, commands: list[list[str]], log: Path) -> None:
        self._commands, self._log, self._codes = commands, log, list[int]()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._ended = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Background":
        self._log.parent.mkdir(exist_ok=True)
        self._thread.start()
        return self

    def wait(self) -> list[int]:
        """Exit codes, once all have ended."""
        self._thread.join()
        sys.stdout.write(self._log.read_text(errors="replace"))
        return self._codes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = True
            if self._process is not None and self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGTERM)

    def _run(self) -> None:
        with self._log.open("wb") as log:
            for command in self._commands:
                with self._lock:
                    if self._ended:
                        return
                    self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                self._codes.append(self._process.wait())
