"""What threads have to tell the one that waits: calls to be made there, and a descriptor to wait on."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

#: A reader that is ahead of the driver by so many pieces waits; so does the container, and nothing is lost.
MOST_WAITING = 256


class Mailbox:
    """``post`` from any thread, ``deliver`` in one. ``descriptor`` is readable while something may be waiting."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue(MOST_WAITING)
        self.descriptor, self._writing = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._writing, False)
        self._closed = False
        self._lock = threading.Lock()  # no wake-up after the end of its descriptor, whose number is another's then

    def post(self, call: Callable[[], None]) -> None:
        """Leave a call; waits while too many lie there, and drops it when nobody will read any more."""
        while not self._closed:
            try:
                self._calls.put(call, timeout=0.5)
                break
            except queue.Full:
                continue
        with self._lock, suppress(BlockingIOError):  # full of wake-ups
            if not self._closed:
                os.write(self._writing, b"x")

    def deliver(self) -> None:
        """Make the calls that wait, in the order they came."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, MOST_WAITING * 16)
        with suppress(queue.Empty):
            while True:
                self._calls.get_nowait()()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            os.close(self.descriptor)
            os.close(self._writing)
