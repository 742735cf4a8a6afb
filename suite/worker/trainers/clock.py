"""The recorder for iterations that the suite does not write: phases in pieces, and details inside of them."""

import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from suite.worker.memory import Peaks
from suite.worker.recorder import NullRecorder, Recorder, check_phase
from suite.worker.world import synchronise


class NullClock(NullRecorder):
    """Times nothing and waits for nobody: an iteration under it is the bare trainer."""

    def open(self, phase: str, alone: bool = False) -> None:
        """A piece of ``phase`` begins; ``alone``: no other rank takes part, so nobody is waited for."""

    def close(self, more: bool = False) -> None:
        """The open piece ends; ``more``: another one of the same phase follows in this iteration."""

    def beat(self) -> None:
        """The trainer has come further, within a phase or between two."""

    @contextmanager
    def phase(self, name: str, more: bool = False, alone: bool = False) -> Iterator[None]:
        """``open`` and ``close`` around a block. An exception leaves the piece open, for the failure event."""
        self.open(name, alone)
        yield
        self.close(more)

    @contextmanager
    def detail(self, name: str) -> Iterator[None]:
        """A piece of work called ``phase/name``, timed on the device without stopping it.

        What an inner one takes is not counted to the one around it.
        """
        yield


class PhaseClock(NullClock, Recorder):
    """The engines' clock on a foreign iteration, of which every rank writes an event for every phase.

    Between phases ranks drift apart in work of the trainer's own. So a piece begins with a barrier too, and the time a
    rank waits there counts as ``other``. The event of a phase in pieces is written when the last one ends.
    """

    def __init__(self, *arguments: Any) -> None:
        Recorder.__init__(self, *arguments)
        #: by phase, of each piece so far: its seconds, those waited behind it, and its peaks
        self._pieces: Dict[str, List[Tuple[float, float, Peaks]]] = {}
        self._open: Optional[Tuple[str, bool, float]] = None
        self._mark = marker(self._world.device.type)
        #: of each, its name, that of the one it was inside of, and two readings of the device's time
        self._details: List[Tuple[str, Optional[str], Any, Any]] = []
        self._nested_in: List[str] = []

    def begin(self, iteration: int) -> None:
        assert self._open is None and not self._pieces, "an iteration begins when the one before is over"
        self._details.clear()
        Recorder.begin(self, iteration)
        self._progress.phase = "other"

    def open(self, phase: str, alone: bool = False) -> None:
        assert self._open is None, "phases do not overlap"
        check_phase(phase)
        synchronise(self._world)
        if not alone:
            self.meet()
        self._progress.phase = phase
        self._memory.reset()
        self._open = (phase, alone, time.perf_counter())

    def close(self, more: bool = False) -> None:
        assert self._open is not None, "a phase is opened before it is closed"
        phase, alone, began = self._open
        synchronise(self._world)
        done = time.perf_counter()
        if not alone:
            self.meet()
        piece = (done - began, time.perf_counter() - done, self._memory.peaks())
        self._pieces.setdefault(phase, []).append(piece)
        self._open = None
        self._progress.phase = "other"
        if not more:
            seconds, wait_seconds, peaks = zip(*self._pieces.pop(phase))
            self._emit_phase(phase, sum(seconds), sum(wait_seconds), _largest(peaks))

    @contextmanager
    def detail(self, name: str) -> Iterator[None]:
        self._nested_in.append(name)
        began = self._mark()
        yield
        ended = self._mark()
        self._nested_in.pop()
        self._details.append((name, self._nested_in[-1] if self._nested_in else None, began, ended))

    def stop(self) -> None:
        assert self._open is None and not self._pieces, "phases end before their iteration"
        Recorder.stop(self)

    def finish(self, counts: Dict[str, int], stats: Dict[str, Optional[float]], **optional: Any) -> None:
        Recorder.finish(self, counts, stats, **self.with_details(optional))

    def with_details(self, optional: Dict[str, Any]) -> Dict[str, Any]:
        """Further fields of the iteration's event, with the details where there are any."""
        details = _sums(self._details)
        self._details.clear()
        return {**optional, "details": details} if details else optional

    def beat(self) -> None:
        self._progress.beat()


def _largest(pieces: Sequence[Peaks]) -> Peaks:
    """Peak by peak; unknown where one is."""
    found = {name: [peaks[name] for peaks in pieces] for name in pieces[0]}
    return {name: None if None in each else max(each) for name, each in found.items()}


def marker(device_type: str) -> Callable[[], Any]:
    """Takes the time on the device: an event in its stream, or the clock of a CPU."""
    if device_type != "cuda":
        return time.perf_counter

    def record() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return record


def seconds_between(began: Any, ended: Any) -> float:
    """Of two marks, once the device has passed both."""
    return float(ended - began if isinstance(began, float) else began.elapsed_time(ended) / 1000.0)


def _sums(details: List[Tuple[str, Optional[str], Any, Any]]) -> Dict[str, float]:
    """Seconds by name, without those of details inside."""
    sums: Dict[str, float] = {}
    for name, outer, began, ended in details:
        seconds = seconds_between(began, ended)
        sums[name] = sums.get(name, 0.0) + seconds
        if outer is not None:
            sums[outer] = sums.get(outer, 0.0) - seconds
    return sums
