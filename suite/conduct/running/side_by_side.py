"""Several runs at once on one host, each on devices of its own. Neighbours disturb timings, so the record says so."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import partial
from typing import Any, NamedTuple

from suite.bundle.record import Record
from suite.bundle.store import AlreadyThere, DamagedBundle
from suite.conduct.planning.machine import Machine
from suite.conduct.planning.plan import Plan
from suite.conduct.running.containers import ContainerMachine
from suite.conduct.running.execute import execute
from suite.conduct.running.ledger import Ledger, Settings, View
from suite.conduct.running.session import Further, Summary, work_through
from suite.launch.docker.launcher import DockerLauncher
from suite.launch.docker.mailbox import Mailbox
from suite.launch.outcome import Launcher
from suite.launch.requests import StopRequests, stop_requests
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest

Result = Record | DamagedBundle | Exception


def require_containers(machine: Machine, runs_at_once: int) -> None:
    """Raises UsageError when runs are to go on side by side that have no container to keep them apart."""
    if runs_at_once > 1 and not isinstance(machine, ContainerMachine):
        raise UsageError(f"--parallel {runs_at_once} keeps runs apart in containers: add --launcher docker")


def run_side_by_side(
    plan: Plan,
    settings: Settings,
    machine: Machine,
    launcher: Launcher,
    view: View,
    most: int,
    further: Further | None = None,
) -> Summary:
    """As ``run_plan``, with at most ``most`` runs at once, each on devices (on a CPU: cores) of its own."""
    assert isinstance(machine, ContainerMachine) and isinstance(launcher, DockerLauncher), "see require_containers"
    slots = Slots(machine.device_names, most)

    def work(ledger: Ledger) -> bool:
        return SideBySide(ledger, settings, launcher, slots, view).work()

    return work_through(plan, settings, view, time.monotonic, work, further)


class Slots:
    """Devices of one host by name, lent to runs: each takes the first that are free."""

    def __init__(self, devices: tuple[str, ...], most: int) -> None:
        self._free = list(devices)
        self._order = {device: index for index, device in enumerate(devices)}
        self._runs_left = self.most = most

    def wanted_by(self, manifest: Manifest) -> int:
        """A GPU for each rank, or a CPU for each of its threads; all there are where a run wants more."""
        threads = manifest.measure.threads_per_rank if manifest.measure.device == "cpu" else 1
        return min(manifest.layout.ranks * threads, len(self._order))

    def has_room(self, count: int) -> bool:
        """Whether one more run may start, and has its devices."""
        return self._runs_left > 0 and count <= len(self._free)

    def take(self, count: int) -> tuple[str, ...]:
        """Lend devices to one run; ask ``has_room`` before."""
        taken, self._free = tuple(self._free[:count]), self._free[count:]
        self._runs_left -= 1
        return taken

    def give_back(self, devices: tuple[str, ...]) -> None:
        """Take back what ``take`` gave."""
        self._free = sorted([*self._free, *devices], key=self._order.__getitem__)
        self._runs_left += 1


class Lane(NamedTuple):
    """A run that goes on: its devices, and the pipe that carries stop requests to it."""

    devices: tuple[str, ...]
    reading: int
    writing: int


class SideBySide:
    """Runs of a ledger in threads, as many at once as there are slots for. One use."""

    def __init__(self, ledger: Ledger, settings: Settings, launcher: DockerLauncher, slots: Slots, view: View) -> None:
        self._ledger, self._settings, self._launcher = ledger, settings, launcher
        self._slots, self._view = slots, view
        self._mailbox = Mailbox()
        self._lanes: dict[str, Lane] = {}
        self._interrupted = False
        self._error: Exception | None = None

    def work(self) -> bool:
        """Work until nothing is left, or until all that ran has ended after a stop request; whether that came.

        Raises what kept a run from having a bundle or from being shown, once all have ended.
        """
        threads, selector = ThreadPoolExecutor(max_workers=self._slots.most), selectors.DefaultSelector()
        with stop_requests() as requests, closing(self._mailbox), threads, selector:
            selector.register(requests.descriptor, selectors.EVENT_READ, partial(self._stop, requests))
            selector.register(self._mailbox.descriptor, selectors.EVENT_READ, self._mailbox.deliver)
            while self._tried(partial(self._start, threads)) or self._lanes:
                for key, _ in selector.select():
                    key.data()
        if self._error is not None:
            raise self._error
        return self._interrupted

    def _start(self, threads: ThreadPoolExecutor) -> bool:
        """Start every run for which there is room; whether one was started."""
        started = False
        while not (self._interrupted or self._error):
            manifest = self._ledger.take(lambda waiting: self._slots.has_room(self._slots.wanted_by(waiting)))
            if manifest is None:
                break
            lane = Lane(self._slots.take(self._slots.wanted_by(manifest)), *os.pipe())
            os.set_blocking(lane.reading, False)
            self._lanes[manifest.run.id] = lane
            threads.submit(self._run, manifest, lane)
            started = True
        return started

    def _run(self, manifest: Manifest, lane: Lane) -> None:
        """In a thread: one run to its end, posted to the main thread, which alone touches ledger and view."""
        launcher = self._launcher.beside(
            self._slots.most,
            gpus=lane.devices if manifest.measure.device == "cuda" else (),
            cpuset=",".join(lane.devices) if manifest.measure.device == "cpu" else None,
            stops=lambda: nullcontext(StopRequests(lane.reading)),
        )
        result: Result
        try:
            python = self._settings.python_of(manifest.backend.name)
            result = execute(manifest, self._settings.root, launcher, python, self._post_event)
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            result = error
        self._mailbox.post(partial(self._tried, partial(self._end, manifest, lane, result)))

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

    def _end(self, manifest: Manifest, lane: Lane, result: Result) -> None:
        del self._lanes[manifest.run.id]
        self._slots.give_back(lane.devices)
        os.close(lane.reading)
        os.close(lane.writing)
        if isinstance(result, (Record, DamagedBundle, AlreadyThere)):
            self._ledger.ended(manifest, result)
        else:
            self._fail(result)

    def _stop(self, requests: StopRequests) -> None:
        """Pass a stop request on to every run; none is started after it."""
        name = requests.take()
        if name is not None:
            self._interrupted = True
            self._forward(signal.Signals[name])

    def _forward(self, request: signal.Signals) -> None:
        for lane in self._lanes.values():
            os.write(lane.writing, bytes([request]))
