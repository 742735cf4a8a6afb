"""Watching a run to its end, whoever runs it: one wait for output, exits, stop requests, turns and deadlines."""

import errno
import json
import os
import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from suite.launch.job import Job
from suite.launch.outcome import Failure, FailureKind, OnEvent
from suite.launch.requests import StopRequests
from suite.launch.stream import EventStream
from suite.launch.traces import LOOK_SECONDS, MOST_BYTES, hold, iteration_of, phase_of
from suite.spec.foreign import open_log
from suite.spec.typed import LONGEST_WAIT_SECONDS

#: a limit that a wait has put off is not looked at more often
_LEAST_SECONDS, _ROUNDING_SECONDS = 0.5, 1e-3
#: address of the driver's socket: a path, or behind ``@`` an abstract name (unix(7))
TURNS = "SUITE_TURNS"
WAITS, GOES_ON = b"-", b"+"


def connected(address: str) -> str:
    """As the kernel takes it."""
    return f"\0{address[1:]}" if address.startswith("@") else address


class Watch(ABC):
    """One run that is watched; what speaks for it prints rank 0's events, and all else of that goes into ``log``."""

    def __init__(self, job: Job, log: Path, on_event: OnEvent, requests: StopRequests) -> None:
        self._job, self._on_event, self._requests = job, on_event, requests
        self._channel: socket.socket | None = None  # of who gives the job turns, who says there when it waits
        if TURNS in job.env:
            self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with suppress(OSError):  # the driver is gone, as its end of the channel then says
                self._channel.connect(connected(job.env[TURNS]))
                self._channel.sendall(json.dumps({"run": job.name, "watches": True}).encode() + b"\n")
        self._waited = 0.0  # seconds, but for those since it waits now
        self._since: float | None = None
        self._selector = selectors.DefaultSelector()
        self._alarms: dict[Callable[[], None], float] = {}  # what is to be done, and when (monotonic)
        self._log_path, self._log = log, open_log(log, f"logs/{log.name}")
        self._logs, self._cut = [log], dict[Path, int]()  # those that are kept to a size, and what was cut of them
        self._unlooked = 0  # bytes that were written since they were looked at
        self._stream = EventStream(self._write, self._take_event)
        self._began = self._ended = time.monotonic()
        self._phase: str | None = None  # the last that rank 0 reported
        self._iteration: int | None = None
        self._verdict: Failure | None = None
        self._interrupted_by: str | None = None

    @abstractmethod
    def _terminate(self) -> None:
        """Ask it to end."""

    @abstractmethod
    def _kill(self) -> None:
        """End it."""

    def _watch(self, goes_on: Callable[[], bool]) -> None:
        self._selector.register(self._requests.descriptor, selectors.EVENT_READ, self._take_request)
        if self._channel is not None:
            self._selector.register(self._channel, selectors.EVENT_READ, self._hear_of_turns)
        while goes_on():
            due = min(self._alarms.values(), default=None)
            wait = None if due is None else min(max(due - time.monotonic(), 0.0), LONGEST_WAIT_SECONDS)
            for key, _ in self._selector.select(wait):
                key.data()
            for action in [action for action, due in self._alarms.items() if due <= time.monotonic()]:
                if self._alarms.pop(action, None) is not None:
                    action()

    def _close(self) -> None:
        self._selector.close()
        if self._channel is not None:
            self._channel.close()
        os.close(self._log)

    def _stopped_by(self) -> str | None:
        """The stop request that it was ended by, or that came when it had ended."""
        self._interrupted_by = self._interrupted_by or self._requests.take()
        return self._interrupted_by

    def _take_request(self) -> None:
        """The first request ends the run, a second one at once."""
        name = self._requests.take()
        if name is not None and self._interrupted_by is None:
            self._interrupted_by = name
            self._terminate()
        elif name is not None:
            self._kill()

    def _hear_of_turns(self) -> bool:
        """Whether it waits from now on; not where nobody tells any more."""
        assert self._channel is not None, "somebody gives turns"
        told = b""
        with suppress(OSError):
            told = self._channel.recv(4096)
        if not told:
            self._selector.unregister(self._channel)
        waits = told.endswith(WAITS)
        if waits and self._since is None:
            self._since = time.monotonic()
        elif not waits and self._since is not None:
            self._waited += time.monotonic() - self._since
            self._since = None
        return waits

    def _clock(self) -> float:
        """Seconds as ``time.monotonic`` has them, which stand still while it waits."""
        return (time.monotonic() if self._since is None else self._since) - self._waited

    def _is_early(self, alarm: Callable[[], None], since: float, limit: float) -> bool:
        """Whether less than the limit has passed ``since`` a time of ``_clock``; it is set again then."""
        left = limit - (self._clock() - since)
        if left > _ROUNDING_SECONDS:
            self._alarms[alarm] = time.monotonic() + max(left, _LEAST_SECONDS)
        return left > _ROUNDING_SECONDS

    def _take_event(self, event: dict[str, Any]) -> None:
        phase, iteration = phase_of(event), iteration_of(event)
        self._phase = self._phase if phase is None else phase
        self._iteration = self._iteration if iteration is None else iteration
        self._on_event(event)

    def _write(self, data: bytes) -> None:
        """Append to the log. A full disk ends the run; it is heard further, so that it can end."""
        self._unlooked += len(data)
        try:
            while data:
                data = data[os.write(self._log, data) :]
        except OSError as error:
            if self._verdict is None:
                kind: FailureKind = "config" if error.errno == errno.EFBIG else "disk_full"
                hint = " (ulimit -f)" if error.errno == errno.EFBIG else ""
                self._verdict = self._failure(kind, f"{self._log_path}: {error.strerror}{hint}")
                self._terminate()
        if self._unlooked > MOST_BYTES // 2:
            self._look_at_logs()

    def _look_at_logs(self) -> None:
        hold(self._logs, self._cut)
        self._unlooked = 0
        self._alarms[self._look_at_logs] = time.monotonic() + LOOK_SECONDS

    def _failure(self, kind: FailureKind, *evidence: str) -> Failure:
        return Failure(kind=kind, phase=self._phase, iteration=self._iteration, evidence=evidence)
