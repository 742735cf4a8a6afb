"""When a run waits for its turn, as the driver that gives turns tells whoever watches it (``suite.launch.turns``)."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress

from suite.launch.job import Job

#: address of the driver's socket: a path, or behind ``@`` an abstract name (unix(7))
TURNS = "SUITE_TURNS"
WAITS, GOES_ON = b"-", b"+"


def connected(address: str) -> str:
    """As the kernel takes it."""
    return f"\0{address[1:]}" if address.startswith("@") else address


class Waits:
    """Those of one run. ``channel`` is readable when there is something to ``hear``; null where nobody gives turns."""

    def __init__(self, job: Job) -> None:
        self.channel: socket.socket | None = None
        self._spans: list[tuple[float, float]] = []
        self._since: float | None = None
        address = job.env.get(TURNS)
        if address is not None:
            self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with suppress(OSError):  # the driver is gone, as its end of the channel then says
                self.channel.connect(connected(address))
                self.channel.sendall(json.dumps({"run": job.name, "watches": True}).encode() + b"\n")

    def hear(self) -> bool | None:
        """Whether the run waits from now on; null where nobody tells any more, and it does not."""
        assert self.channel is not None, "somebody gives turns"
        told = b""
        with suppress(OSError):
            told = self.channel.recv(4096)
        waits = told.endswith(WAITS)
        if waits and self._since is None:
            self._since = time.monotonic()
        elif not waits and self._since is not None:
            self._spans.append((self._since, time.monotonic()))
            self._since = None
        return waits if told else None

    def seconds(self, last: float) -> float:
        """How many of the last so many seconds it waited."""
        now = time.monotonic()
        spans = self._spans if self._since is None else [*self._spans, (self._since, now)]
        return sum(max(0.0, end - max(begin, now - last)) for begin, end in spans)

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
