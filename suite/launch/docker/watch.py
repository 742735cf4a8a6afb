"""Watching one container from its start to its end, and all that it prints, also over a break of the connection."""

import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from docker import APIClient
from docker.errors import APIError, DockerException, NotFound
from pydantic import ValidationError
from urllib3.exceptions import HTTPError

from suite.launch.docker.conclude import ContainerEnd, reason_of
from suite.launch.job import Job
from suite.launch.node import OUTCOME_KIND
from suite.launch.outcome import OnEvent, Outcome
from suite.launch.requests import Mailbox, StopRequests
from suite.launch.traces import log_tail
from suite.launch.watching import Watch

CONTAINER_LOG = "container.log"
REMOVED = "the container was removed in mid-run by somebody else"
_AWAY = "the runtime has not answered for"
RETRY_SECONDS = 0.3


def _rest(name: str, stream: Iterable[bytes], known: int) -> Iterator[tuple[str, bytes | None]]:
    """What comes after the first ``known`` bytes."""
    for data in stream:
        skipped = min(known, len(data))
        known -= skipped
        yield name, data[skipped:]


@dataclass(frozen=True)
class ContainerPatience:
    """How long a container and its runtime are given, in seconds. The node inside ends a run sooner."""

    start_seconds: float = 300.0  # beyond the run's limit: to start, and for the node to end what it runs
    end_seconds: float = 25.0  # from SIGTERM to SIGKILL: the node's own patience is below it
    kill_seconds: float = 15.0  # from SIGKILL until it is given up
    output_seconds: float = 10.0  # from the container's end to the end of its output
    break_seconds: float = 5.0  # from the end of its output until it is asked for again, if it still runs
    runtime_seconds: float = 30.0  # for a runtime that does not answer to come back
    remove_seconds: float = 15.0  # for a runtime to remove what is left of a run


USUAL_PATIENCE = ContainerPatience()


class ContainerWatch(Watch):
    """One container: ``attach``, start it, ``watch``, then ``end`` tells what became of it; ``close`` in any case.

    Its output is read by threads, as it is from its first byte on; after a break it goes on from the runtime's log at
    the bytes reached, which replaces bytes that are no UTF-8.
    """

    def __init__(
        self,
        api: APIClient,
        container: str,
        job: Job,
        folder: Path,
        on_event: OnEvent,
        requests: StopRequests,
        patience: ContainerPatience,
    ) -> None:
        super().__init__(job, folder / "logs" / CONTAINER_LOG, on_event, requests)
        self._api, self._container, self._patience = api, container, patience
        self._mailbox = Mailbox()
        self._read = {"stdout": 0, "stderr": 0}
        self._connections: list[Any] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._output_ended = False
        self._exited = False
        self._known = ContainerEnd(job.ranks)

    def attach(self) -> None:
        """Listen to the container, which is not started yet. Raises what the runtime raises."""
        stream = self._api.attach(self._container, stdout=True, stderr=True, stream=True, demux=True)
        self._follow([(stream, (piece for both in stream for piece in zip(self._read, both, strict=True)))])

    def watch(self) -> None:
        """Block until the container has ended and its output was read, or it was given up."""
        self._began = time.monotonic()
        limit = self._job.limits.run_seconds + self._patience.start_seconds
        self._alarms = {self._overdue: self._began + limit}
        threading.Thread(target=self._wait_for_exit, daemon=True).start()
        self._selector.register(self._mailbox.descriptor, selectors.EVENT_READ, self._mailbox.deliver)
        self._watch(lambda: not (self._exited and self._output_ended))
        self._stream.close()

    @property
    def is_unseen(self) -> bool:
        """Whether the runtime stayed away and nothing tells how the run ended: it may even go on."""
        is_away = (self._known.gone or "").startswith(_AWAY)
        return is_away and self._known.outcome is None and self._interrupted_by is None

    def end(self, inspect: Callable[[str], dict[str, Any] | None]) -> ContainerEnd:
        """All that is known. ``inspect``: what the runtime says of the container, None when it knows it no longer."""
        known = self._known
        told = {} if known.gone else inspect(self._container) or {"Status": "removing"}
        if told.get("Status") == "removing":
            known.gone = REMOVED
        known.oom_killed, known.error = bool(told.get("OOMKilled")), str(told.get("Error") or "")
        known.elapsed_seconds = max(self._ended - self._began, 0.0)
        known.verdict, known.interrupted_by = self._verdict, self._stopped_by()
        known.tail, known.phase, known.iteration = log_tail(self._log_path), self._phase, self._iteration
        return known

    def close(self) -> None:
        """Let go of everything but the container."""
        self._closing.set()
        with self._lock:
            for stream in self._connections:  # their threads let go of them
                with suppress(OSError):  # the other side has closed it already
                    stream.close()
        self._mailbox.close()
        self._close()

    def _follow(self, streams: list[tuple[Any, Iterator[tuple[str, bytes | None]]]]) -> None:
        self._connections = [stream for stream, _ in streams]
        for each in streams:
            threading.Thread(target=self._drain, args=each, daemon=True).start()

    def _drain(self, stream: Any, pieces: Iterator[tuple[str, bytes | None]]) -> None:
        # where the connection is broken, or was closed under a read, this stream has ended
        with suppress(OSError, HTTPError, ValueError):
            for name, data in pieces:
                if data:
                    self._read[name] += len(data)
                    self._mailbox.post(partial(self._stream.feed if name == "stdout" else self._write, data))
        with self._lock:
            self._connections.remove(stream)
            stream._response.close()  # the SDK leaves it to the collector of cycles, hundreds of runs later
            is_last = not self._connections
        if is_last:
            self._mailbox.post(self._take_output_end)

    def _take_event(self, event: dict[str, Any]) -> None:
        if event["kind"] != OUTCOME_KIND:
            return super()._take_event(event)
        with suppress(ValidationError):  # a rank that prints such a line is no node
            self._known.outcome = Outcome.model_validate({key: event[key] for key in event if key != "kind"})

    def _take_output_end(self) -> None:
        """All was read, or the connection broke: the container's exit tells which, and comes at once if it has one."""
        if self._exited:
            self._output_ended = True
        else:
            self._alarms[self._resume] = time.monotonic() + self._patience.break_seconds

    def _resume(self) -> None:
        streams = []
        try:
            for name, known in self._read.items():
                wanted = {each: each == name for each in self._read}
                stream = self._api.logs(self._container, stream=True, follow=True, **wanted)
                streams.append((stream, _rest(name, stream, known)))
            self._follow(streams)
        except APIError:
            self._output_ended = True  # the container is gone; its exit says so
        except (DockerException, OSError):
            self._alarms[self._resume] = time.monotonic() + RETRY_SECONDS  # the runtime is away; its return is awaited

    def _take_exit(self, code: int | None, gone: str | None) -> None:
        """The container has ended, or was lost; what it wrote last is still on its way."""
        self._exited, self._known.exit_code, self._known.gone = True, code, gone
        self._ended = time.monotonic()
        if self._resume in self._alarms or gone is not None:
            self._output_ended = True
        self._alarms = {self._take_output_end: self._ended + self._patience.output_seconds}

    def _overdue(self) -> None:
        """The node should have given the run up long ago."""
        limit, more = self._job.limits.run_seconds, self._patience.start_seconds
        if not self._is_early(self._overdue, self._began, limit + more):
            line = f"the container did not end {more:g} s after the run's limit of {limit:g} s"
            self._verdict = self._failure("timeout", line)
            self._terminate()

    def _terminate(self) -> None:
        self._signal(signal.SIGTERM)
        self._alarms.pop(self._overdue, None)
        self._alarms[self._kill] = time.monotonic() + self._patience.end_seconds

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._alarms.pop(self._kill, None)
        given_up = partial(self._take_exit, None, "the container did not end after SIGKILL")
        self._alarms[given_up] = time.monotonic() + self._patience.kill_seconds

    def _signal(self, number: signal.Signals) -> None:
        with suppress(DockerException, OSError):  # ended already, or the runtime is away
            self._api.kill(self._container, number.value)

    def _wait_for_exit(self) -> None:
        """In a thread: wait for the container over every break, until the runtime stays away for too long."""
        away_since: float | None = None
        while not self._closing.is_set():
            try:
                code = self._api.wait(self._container, timeout=None)["StatusCode"]
                return self._mailbox.post(partial(self._take_exit, code, None))
            except NotFound:
                return self._mailbox.post(partial(self._take_exit, None, REMOVED))
            except (DockerException, OSError, ValueError) as error:
                if away_since is None:
                    away_since = time.monotonic()
                    self._known.trouble.append(f"the runtime broke off in mid-run: {reason_of(error)}")
                if time.monotonic() - away_since > self._patience.runtime_seconds:
                    away = f"{_AWAY} {self._patience.runtime_seconds:g} s"
                    return self._mailbox.post(partial(self._take_exit, None, away))
            self._closing.wait(RETRY_SECONDS)
