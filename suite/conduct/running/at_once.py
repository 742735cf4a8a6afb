"""Several runs of a ledger at the same time, a thread for each: side by side, or in turns by iteration."""

import selectors
import signal
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from suite.bundle.record import Record
from suite.bundle.store import AlreadyThere, DamagedBundle
from suite.conduct.planning.turns import turns_refused
from suite.conduct.running.execute import execute
from suite.conduct.running.session import Ledger, one_by_one
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Launcher
from suite.launch.requests import Mailbox, StopRequests, Stops, stop_requests
from suite.launch.turns import MOST_LENGTH, Arbiter, Listener, Start
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest

if TYPE_CHECKING:
    from suite.launch.docker.launcher import DockerLauncher

#: What a run of short iterations has of turns at least, where their length is not given.
LEAST_TURNS = 6
#: Equal of runs that are started together; null of one that is alone.
Group = Callable[[Manifest], Hashable | None]


@dataclass
class AtOnce:
    """Runs in threads; the one that waits for all alone touches ledger and view. One use.

    ``following``: the next run to start now, taken from the ledger; null where others have to end first, or none is
    left. ``launcher``: what launches a run, stopped by these requests; called in its thread. ``ended``: a run is over.
    """

    ledger: Ledger
    following: Callable[[], Manifest | None]
    launcher: Callable[[Manifest, Stops], Launcher]
    ended: Callable[[Manifest], object]
    selector: selectors.BaseSelector
    start: Start | None = None
    _mailbox: Mailbox = field(default_factory=Mailbox)
    _going: dict[str, StopRequests] = field(default_factory=dict)
    _interrupted: bool = False
    _error: Exception | None = None

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
        with stop_requests() as requests, closing(self._mailbox):
            self.selector.register(requests.descriptor, selectors.EVENT_READ, partial(self._stop, requests))
            self.selector.register(self._mailbox.descriptor, selectors.EVENT_READ, self._mailbox.deliver)
            while self._tried(self._start) or self._going:
                for key, _ in self.selector.select():
                    self._tried(key.data)
        if self._error is not None:
            raise self._error
        return self._interrupted

    def _start(self) -> bool:
        """Start every run that may be; whether one was started."""
        started = False
        while not (self._interrupted or self._error) and (manifest := self.following()) is not None:
            requests = self._going[manifest.run.id] = StopRequests()
            threading.Thread(target=self._run, args=(manifest, requests)).start()
            started = True
        return started

    def _run(self, manifest: Manifest, requests: StopRequests) -> None:
        """In a thread: one run to its end."""
        result: Record | Exception
        try:
            launcher = self.launcher(manifest, lambda: nullcontext(requests))
            python = self.ledger.settings.python_of(manifest.backend.label)
            on_event = partial(self._post, self.ledger.view.event)
            result = execute(manifest, self.ledger.settings.root, launcher, python, on_event, self.start)
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            result = error
        self._post(self._end, manifest, result)

    def _post(self, call: Callable[..., object], *given: Any) -> None:
        self._mailbox.post(partial(self._tried, partial(call, *given)))

    def _tried(self, call: Callable[[], Any]) -> Any:
        """What a call gives. What it raises, as of a closed pipe, ends all runs, and is told once they have ended."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - raised at the end
            self._error = self._error or error
            self._forward(signal.SIGTERM)
            return None

    def _end(self, manifest: Manifest, result: Record | Exception) -> None:
        self._going.pop(manifest.run.id).close()
        try:
            if not isinstance(result, (Record, DamagedBundle, AlreadyThere)):
                raise result
            self.ledger.ended(manifest, result)
        finally:
            self.ended(manifest)

    def _stop(self, requests: StopRequests) -> None:
        """Pass a stop request on to every run; none is started after it."""
        name = requests.take()
        if name is not None:
            self._interrupted = True
            self._forward(signal.Signals[name])

    def _forward(self, request: signal.Signals) -> None:
        for requests in self._going.values():
            requests.add(request)


class Slots:
    """Devices of one host by name, lent to runs, of which at most so many go on."""

    def __init__(self, devices: tuple[str, ...], most: int) -> None:
        self.most, self._devices = most, devices
        self.lent: dict[str, tuple[str, ...]] = {}  # by run

    def room_for(self, manifest: Manifest) -> tuple[str, ...]:
        """The first that are free: a GPU for each rank, or a CPU for each of its threads, all there are where a run
        wants more; none where there is no room for it."""
        threads = manifest.measure.threads_per_rank if manifest.measure.device == "cpu" else 1
        wanted = min(manifest.layout.ranks * threads, len(self._devices))
        lent = {*chain(*self.lent.values())}
        free = [device for device in self._devices if device not in lent]
        return tuple(free[:wanted]) if len(self.lent) < self.most and wanted <= len(free) else ()


def side_by_side(ledger: Ledger, launcher: Launcher, slots: Slots) -> bool:
    """A way to run a plan: several at once in containers, each on devices (on a CPU: cores) of its own."""
    containers = cast("DockerLauncher", launcher)

    def following() -> Manifest | None:
        manifest = ledger.take(lambda waiting: bool(slots.room_for(waiting)))
        if manifest is not None:
            slots.lent[manifest.run.id] = slots.room_for(manifest)
        return manifest

    def beside(manifest: Manifest, stops: Stops) -> Launcher:
        devices = slots.lent[manifest.run.id]
        if manifest.measure.device == "cuda":
            return containers.beside(stops, slots.most, gpus=devices)
        return containers.beside(stops, slots.most, gpus=(), cpuset=",".join(devices))

    with selectors.DefaultSelector() as selector:
        return AtOnce(ledger, following, beside, lambda manifest: slots.lent.pop(manifest.run.id), selector).work()


def in_turns(ledger: Ledger, launcher: Launcher, group: Group) -> bool:
    """A way to run a plan: runs of one ``group`` that are still to be made are started together and take turns by
    iteration. Raises UsageError for a group where ``turns_refused`` has a reason."""
    while ledger.waiting:
        if _start(ledger, launcher, group):
            return True
    return False


def _start(ledger: Ledger, launcher: Launcher, group: Group) -> bool:
    """Make the next run of the ledger, with those that take turns with it; whether somebody asked to stop."""
    key = group(ledger.waiting[0])
    if key is None:
        return one_by_one(ledger, launcher, once=True)
    reason = turns_refused(launcher)
    if reason is not None:
        raise UsageError(f"rows cannot take turns by iteration: {reason}; --turns rounds runs one after the other")
    able = cast("LocalLauncher | DockerLauncher", launcher)
    taken: list[Manifest] = []
    while manifest := ledger.take(lambda waiting: group(waiting) == key, is_begun=bool(taken)):
        taken.append(manifest)
    if not taken:
        return False
    rows = tuple(sorted(manifest.run.id for manifest in taken))
    ranks = {manifest.run.id: manifest.layout.ranks for manifest in taken}
    start_id = token_hex(32)

    def beside(manifest: Manifest, stops: Stops) -> Launcher:
        return able.beside(stops, runs.in_main_thread) if isinstance(able, LocalLauncher) else able.beside(stops)

    def ended(manifest: Manifest) -> None:
        arbiter.end(manifest.run.id)

    with (
        closing(Listener(shared=not isinstance(able, LocalLauncher))) as listener,
        able.together() if isinstance(able, LocalLauncher) else nullcontext(),
        selectors.DefaultSelector() as selector,
        closing(Arbiter(selector, listener, ranks, start_id, _turn_lengths(taken))) as arbiter,
    ):
        start = Start(start_id, rows, listener.address, listener.folder)
        runs = AtOnce(ledger, lambda: taken.pop(0) if taken else None, beside, ended, selector, start)
        return runs.work()


def _turn_lengths(taken: Sequence[Manifest]) -> tuple[int, int]:
    """Fewest and most iterations of a turn. Of one of two, half of all iterations would not count."""
    given = taken[0].measure.turn_length
    if given is not None:
        return given, given
    most = min(MOST_LENGTH, min(manifest.iterations for manifest in taken) // LEAST_TURNS)
    return 1, most if most > 2 else 1
