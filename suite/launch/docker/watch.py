"""Watching one container from its start to its end: one wait for output, its exit, stop requests and deadlines."""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from suite.launch.docker.conclude import ContainerEnd, reason_of
from suite.launch.docker.output import Output, Stream
from suite.launch.job import Job
from suite.launch.logs import MOST_BYTES, LogLimit
from suite.launch.node import OUTCOME_KIND
from suite.launch.outcome import Failure, OnEvent, Outcome, RunFolder
from suite.launch.requests import Mailbox, StopRequests
from suite.launch.stream import EventStream
from suite.launch.traces import iteration_of, log_tail, phase_of
from suite.launch.waits import Waits
from suite.spec.foreign import open_log
from suite.spec.typed import LONGEST_WAIT_SECONDS

if TYPE_CHECKING:
    from docker import APIClient

CONTAINER_LOG = "container.log"
REMOVED = "the container was removed in mid-run by somebody else"
_AWAY = "the runtime has not answered for"
RETRY_SECONDS, _ROUNDING_SECONDS = 0.3, 1e-3


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


class ContainerWatch:
    """One container: ``attach``, start it, ``watch``, then ``end`` tells what became of it; ``close`` in any case."""

    def __init__(
        self,
        api: APIClient,
        container: str,
        job: Job,
        folder: RunFolder,
        on_event: OnEvent,
        requests: StopRequests,
        patience: ContainerPatience,
    ) -> None:
        self._api, self._container, self._job = api, container, job
        self._on_event, self._requests, self._patience = on_event, requests, patience
        self._waits = Waits(job)
        self._mailbox = Mailbox()
        self._output = Output(api, container, self._mailbox, self._take_data, self._take_output_end)
        self._log_path = folder.logs_dir / CONTAINER_LOG
        self._log = open_log(self._log_path, f"logs/{CONTAINER_LOG}")
        self._log_limit, self._unlooked = LogLimit(), 0  # bytes that were written since the log was looked at
        self._stream = EventStream(self._write, self._take_event)
        self._alarms: dict[Callable[[], None], float] = {}
        self._closing = threading.Event()
        self._began = self._ended = time.monotonic()
        self._output_ended = False
        self._exited = False
        self._exit_code: int | None = None
        self._gone: str | None = None
        self._trouble: list[str] = []
        self._outcome: Outcome | None = None
        self._verdict: Failure | None = None
        self._interrupted_by: str | None = None
        self._phase: str | None = None
        self._iteration: int | None = None

    def attach(self) -> None:
        """Listen to the container, which is not started yet. Raises what the runtime raises."""
        self._output.attach()

    def watch(self) -> None:
        """Block until the container has ended and its output was read, or it was given up."""
        self._began = time.monotonic()
        limit = self._job.limits.run_seconds + self._patience.start_seconds
        self._alarms = {self._overdue: self._began + limit}
        threading.Thread(target=self._wait_for_exit, daemon=True).start()
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests.descriptor, selectors.EVENT_READ, self._take_request)
            selector.register(self._mailbox.descriptor, selectors.EVENT_READ, self._mailbox.deliver)
            if self._waits.channel is not None:
                selector.register(self._waits.channel, selectors.EVENT_READ, partial(self._hear_of_turns, selector))
            while not (self._exited and self._output_ended):
                due = min(self._alarms.values(), default=None)
                for key, _ in selector.select(
                    None if due is None else min(max(due - time.monotonic(), 0.0), LONGEST_WAIT_SECONDS)
                ):
                    key.data()
                for action in [action for action, due in self._alarms.items() if due <= time.monotonic()]:
                    if self._alarms.pop(action, None) is not None:
                        action()
        self._stream.close()

    @property
    def is_lost(self) -> bool:
        """Whether the container, or its runtime, can be asked nothing more."""
        return self._gone is not None

    @property
    def is_unseen(self) -> bool:
        """Whether the runtime stayed away and nothing tells how the run ended: it may even go on."""
        away = self._gone is not None and self._gone.startswith(_AWAY)
        return away and self._outcome is None and self._interrupted_by is None

    def end(self, state: dict[str, Any] | None) -> ContainerEnd:
        """All that is known. ``state``: what the runtime says of the container, None when it knows it no longer."""
        if (state is None or state.get("Status") == "removing") and self._gone is None:
            self._gone = REMOVED
        if self._interrupted_by is None:
            self._interrupted_by = self._requests.take()
        known = state or {}
        return ContainerEnd(
            ranks=self._job.ranks,
            elapsed_seconds=max(self._ended - self._began, 0.0),
            outcome=self._outcome,
            exit_code=self._exit_code,
            oom_killed=bool(known.get("OOMKilled")),
            error=str(known.get("Error") or ""),
            gone=self._gone,
            trouble=tuple(self._trouble),
            verdict=self._verdict,
            interrupted_by=self._interrupted_by,
            tail=log_tail(self._log_path),
            phase=self._phase,
            iteration=self._iteration,
        )

    def close(self) -> None:
        """Let go of everything but the container."""
        self._closing.set()
        self._output.close()
        self._mailbox.close()
        self._waits.close()
        os.close(self._log)

    def _hear_of_turns(self, selector: selectors.BaseSelector) -> None:
        """The node inside stops and wakes its ranks; here waiting is left out of their time alone."""
        if self._waits.hear() is None and self._waits.channel is not None:
            selector.unregister(self._waits.channel)

    def _take_data(self, stream: Stream, data: bytes) -> None:
        if stream == "stdout":
            self._stream.feed(data)
        else:
            self._write(data)

    def _take_event(self, event: dict[str, Any]) -> None:
        if event["kind"] == OUTCOME_KIND:
            with suppress(ValidationError):  # a rank that prints such a line is no node
                self._outcome = Outcome.model_validate({key: event[key] for key in event if key != "kind"})
            return
        phase, iteration = phase_of(event), iteration_of(event)
        self._phase = self._phase if phase is None else phase
        self._iteration = self._iteration if iteration is None else iteration
        self._on_event(event)

    def _write(self, data: bytes) -> None:
        self._unlooked += len(data)
        if self._unlooked > MOST_BYTES // 2:
            self._log_limit.hold([self._log_path])
            self._unlooked = 0
        try:
            while data:
                data = data[os.write(self._log, data) :]
        except OSError as error:
            if self._verdict is None:
                where = f"logs/{CONTAINER_LOG}: {error.strerror}"
                self._verdict = Failure(
                    kind="disk_full", phase=self._phase, iteration=self._iteration, evidence=(where,)
                )
                self._terminate()

    def _take_output_end(self) -> None:
        """All was read, or the connection broke: the container's exit tells which, and comes at once if it has one."""
        if self._exited:
            self._output_ended = True
        else:
            self._alarms[self._resume] = time.monotonic() + self._patience.break_seconds

    def _resume(self) -> None:
        from docker.errors import APIError, DockerException
        from requests.exceptions import RequestException

        try:
            self._output.resume()
        except APIError:
            self._output_ended = True  # the container is gone; its exit says so
        except (DockerException, RequestException, OSError):
            self._alarms[self._resume] = time.monotonic() + RETRY_SECONDS  # the runtime is away; its return is awaited

    def _take_exit(self, code: int | None, gone: str | None) -> None:
        """The container has ended, or was lost; what it wrote last is still on its way."""
        self._exited, self._exit_code, self._gone = True, code, gone
        self._ended = time.monotonic()
        if self._resume in self._alarms or gone is not None:
            self._output_ended = True
        self._alarms = {self._no_more_output: self._ended + self._patience.output_seconds}

    def _no_more_output(self) -> None:
        self._output_ended = True

    def _take_request(self) -> None:
        """The first request ends the container, a second one at once."""
        name = self._requests.take()
        if name is None:
            return
        if self._interrupted_by is None:
            self._interrupted_by = name
            self._terminate()
        else:
            self._kill()

    def _overdue(self) -> None:
        """The node should have given the run up long ago."""
        limit = self._job.limits.run_seconds
        passed = time.monotonic() - self._began
        left = limit + self._patience.start_seconds - (passed - self._waits.seconds(passed))
        if left > _ROUNDING_SECONDS:  # it waited for its turn meanwhile
            self._alarms[self._overdue] = time.monotonic() + max(left, RETRY_SECONDS)
            return
        line = f"the container did not end {self._patience.start_seconds:g} s after the run's limit of {limit:g} s"
        self._verdict = Failure(kind="timeout", phase=self._phase, iteration=self._iteration, evidence=(line,))
        self._terminate()

    def _terminate(self) -> None:
        self._signal(signal.SIGTERM)
        self._alarms.pop(self._overdue, None)
        self._alarms[self._kill] = time.monotonic() + self._patience.end_seconds

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._alarms.pop(self._kill, None)
        self._alarms[self._give_up] = time.monotonic() + self._patience.kill_seconds

    def _give_up(self) -> None:
        self._take_exit(None, "the container did not end after SIGKILL")
        self._output_ended = True

    def _signal(self, number: signal.Signals) -> None:
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        with suppress(DockerException, RequestException, OSError):  # ended already, or the runtime is away
            self._api.kill(self._container, number.value)

    def _wait_for_exit(self) -> None:
        """In a thread: wait for the container over every break, until the runtime stays away for too long."""
        from docker.errors import DockerException, NotFound
        from requests.exceptions import RequestException

        away_since: float | None = None
        while not self._closing.is_set():
            try:
                code = self._api.wait(self._container, timeout=None)["StatusCode"]
                return self._mailbox.post(partial(self._take_exit, code, None))
            except NotFound:
                return self._mailbox.post(partial(self._take_exit, None, REMOVED))
            except (DockerException, RequestException, OSError, ValueError) as error:
                if away_since is None:
                    away_since = time.monotonic()
                    self._trouble.append(f"the runtime broke off in mid-run: {reason_of(error)}")
                if time.monotonic() - away_since > self._patience.runtime_seconds:
                    away = f"{_AWAY} {self._patience.runtime_seconds:g} s"
                    return self._mailbox.post(partial(self._take_exit, None, away))
            self._closing.wait(RETRY_SECONDS)
