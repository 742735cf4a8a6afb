"""What a driver waits for beside its runs: Ctrl-C and SIGTERM, and what other threads have to tell."""

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType


class StopRequests:
    """Signals that ask the driver to stop. ``descriptor`` is readable when one has arrived."""

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, number: int) -> None:
        with suppress(BlockingIOError):  # thousands of requests wait already
            os.write(self._writing, bytes([number]))

    def take(self) -> str | None:
        """Name of the oldest request that was not taken yet, such as ``SIGINT``; ``None`` when there is none."""
        try:
            return signal.Signals(os.read(self.descriptor, 1)[0]).name
        except BlockingIOError:
            return None

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._writing)


Stops = Callable[[], AbstractContextManager[StopRequests]]
#: Those that are collected already, of a block around this one.
_collecting: list[StopRequests] = []


@contextmanager
def _handled(numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """These signals go to the handler while the block runs, but those that are ignored (``nohup``)."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number, usual in before.items():
            if usual is not signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Collect stop signals while the block runs. Main thread only. A block within another one shares its requests."""
    if _collecting:
        yield _collecting[0]
        return
    requests = StopRequests()
    try:
        with _handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), lambda number, frame: requests.add(number)):
            _collecting.append(requests)
            yield requests
    finally:
        _collecting.clear()
        requests.close()


@contextmanager
def held_back(on_request: Callable[[], None]) -> Iterator[None]:
    """Let the block end before Ctrl-C or SIGTERM does what it does: a KeyboardInterrupt after it, a second one at once.
    ``on_request`` is called at the first. In threads other than the main one, which get no signals, it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        on_request()

    with _handled((signal.SIGINT, signal.SIGTERM), note):
        yield
    if seen:
        raise KeyboardInterrupt


#: A reader that is ahead of the driver by so many pieces waits; so does the container, and nothing is lost.
MOST_WAITING = 256


class Mailbox:
    """``post`` from any thread, ``deliver`` in one. ``descriptor`` is readable while something may be waiting."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue(MOST_WAITING)
        self.descriptor, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closed = False
        self._lock = threading.Lock()  # no wake-up after the end of its descriptor, whose number is another's then

    def post(self, call: Callable[[], None]) -> None:
        """Leave a call; waits while too many lie there, and drops it when nobody will read any more."""
        while not self._closed:
            with suppress(queue.Full):
                self._calls.put(call, timeout=0.5)
                break
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
