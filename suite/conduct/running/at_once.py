"""Several runs at the same time: a thread for each, and one that waits for all and alone touches their ledger."""

import os
import selectors
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Any, NamedTuple

from suite.bundle.record import Record
from suite.bundle.store import AlreadyThere, DamagedBundle
from suite.conduct.running.execute import execute
from suite.conduct.running.ledger import Ledger, Settings, View
from suite.launch.outcome import Launcher
from suite.launch.requests import Mailbox, StopRequests, Stops, stop_requests
from suite.launch.turns import Start
from suite.spec.manifest import Manifest

Result = Record | DamagedBundle | Exception


class Lane(NamedTuple):
    """A run that goes on, and the pipe that carries stop requests to it."""

    manifest: Manifest
    reading: int
    writing: int


class AtOnce(ABC):
    """Runs of a ledger in threads. One use. What ends with the thread that starts it is started ``in_main_thread``."""

    def __init__(self, ledger: Ledger, settings: Settings, view: View, most: int) -> None:
        """``most``: how many runs may go on at the same time."""
        self._ledger, self._settings, self._view, self._most = ledger, settings, view, most
        self._mailbox = Mailbox()
        self._lanes: dict[str, Lane] = {}
        self._interrupted = False
        self._error: Exception | None = None

    @abstractmethod
    def following(self) -> Manifest | None:
        """The next run to start now, taken from the ledger; none where others have to end first, or none is left."""

    @abstractmethod
    def launcher(self, manifest: Manifest, stops: Stops) -> Launcher:
        """What launches this run beside others; called in its thread."""

    @abstractmethod
    def ended(self, manifest: Manifest) -> None:
        """A run that was started is over, and its result noted."""

    def start(self) -> Start | None:
        """With whom the runs take turns."""
        return None

    def attending(self, selector: selectors.BaseSelector) -> AbstractContextManager[object]:
        """While the block runs, what was registered with the selector is called, as its data, when it is ready."""
        return nullcontext()

    def in_main_thread(self, call: Callable[[], Any]) -> Any:
        """From a run's thread: what a call gives or raises that the main thread makes."""
        found: Future[Any] = Future()

        def answer() -> None:
            try:
                found.set_result(call())
            except Exception as error:  # noqa: BLE001 - whoever waits for it raises it
                found.set_exception(error)

        self._mailbox.post(answer)
        return found.result()

    def work(self) -> bool:
        """Work until nothing is left, or all have ended after a stop request; whether that came. Raises what kept a run
        from having a bundle or from being shown, once all have ended."""
        threads, selector = ThreadPoolExecutor(max_workers=self._most), selectors.DefaultSelector()
        with stop_requests() as requests, closing(self._mailbox), threads, selector, self.attending(selector):
            selector.register(requests.descriptor, selectors.EVENT_READ, partial(self._stop, requests))
            selector.register(self._mailbox.descriptor, selectors.EVENT_READ, self._mailbox.deliver)
            while self._tried(partial(self._start, threads)) or self._lanes:
                for key, _ in selector.select():
                    self._tried(key.data)
        if self._error is not None:
            raise self._error
        return self._interrupted

    def _start(self, threads: ThreadPoolExecutor) -> bool:
        """Start every run that may be; whether one was started."""
        started = False
        while not (self._interrupted or self._error):
            manifest = self.following()
            if manifest is None:
                break
            lane = Lane(manifest, *os.pipe())
            os.set_blocking(lane.reading, False)
            self._lanes[manifest.run.id] = lane
            threads.submit(self._run, lane)
            started = True
        return started

    def _run(self, lane: Lane) -> None:
        """In a thread: one run to its end, posted to the main thread, which alone touches ledger and view."""
        manifest, requests = lane.manifest, StopRequests(lane.reading)
        result: Result
        try:
            launcher = self.launcher(manifest, lambda: nullcontext(requests))
            python = self._settings.python_of(manifest.backend.label)
            result = execute(manifest, self._settings.root, launcher, python, self._post_event, self.start())
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            result = error
        self._mailbox.post(partial(self._tried, partial(self._end, lane, result)))

    def _post_event(self, event: dict[str, Any]) -> None:
        self._mailbox.post(partial(self._tried, partial(self._view.event, event)))

    def _tried(self, call: Callable[[], Any]) -> Any:
        """What a call gives. What it raises, as of a closed pipe, ends all runs, and is told once they have ended."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - raised at the end
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._forward(signal.SIGTERM)

    def _end(self, lane: Lane, result: Result) -> None:
        del self._lanes[lane.manifest.run.id]
        os.close(lane.reading)
        os.close(lane.writing)
        try:
            if isinstance(result, (Record, DamagedBundle, AlreadyThere)):
                self._ledger.ended(lane.manifest, result)
            else:
                self._fail(result)
        finally:
            self.ended(lane.manifest)

    def _stop(self, requests: StopRequests) -> None:
        """Pass a stop request on to every run; none is started after it."""
        name = requests.take()
        if name is not None:
            self._interrupted = True
            self._forward(signal.Signals[name])

    def _forward(self, request: signal.Signals) -> None:
        for lane in self._lanes.values():
            os.write(lane.writing, bytes([request]))
