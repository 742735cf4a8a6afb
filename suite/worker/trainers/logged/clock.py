"""The clock of a trainer that times itself: every rank writes what the trainer's log tells, and says whose it is."""

from typing import Any, Callable, Dict

from suite.worker.phases import check_phase
from suite.worker.trainers.clock import PhaseClock
from suite.worker.trainers.led import LeadingClock

#: Of events whose seconds and counts are from the trainer's own log.
SOURCE = "trainer"


class ToldClock(PhaseClock):
    """The ranks of one run do each of these together. No phase is opened or closed: the log tells of whole iterations,
    and so does the memory that was sampled meanwhile. ``refresh`` looks again which processes the trainer has."""

    refresh: Callable[[], None] = staticmethod(lambda: None)

    def attend(self, iteration: int) -> None:
        """From here on the trainer is at work on this iteration, until ``tell``."""
        self.meet()
        self._noise.open_window()
        self._memory.reset()
        if self._sampler is not None:
            self._sampler.open_window()
        self._progress.iteration, self._progress.phase = iteration, "other"

    def beat(self) -> None:
        """The trainer has shown that it is at work."""
        self.meet()
        PhaseClock.beat(self)

    def tell(
        self,
        seconds: float,
        phases: Dict[str, float],
        counts: Dict[str, Any],
        stats: Dict[str, Any],
        **optional: Any,
    ) -> None:
        """The iteration is over. Null counts are what the log does not tell."""
        self.meet()
        here: Dict[str, Any] = {"iteration": self._progress.iteration}
        for name, taken in phases.items():
            check_phase(name)
            self._log.emit("phase", phase=name, seconds=taken, wait_seconds=0.0, source=SOURCE, **here)
        self.refresh()
        self._log.emit("memory", phase="other", **here, **self._memory.peaks())
        if self._sampler is not None:
            optional["device"] = self._sampler.close_window()
        optional["noise"] = self._noise.close_window()
        self._log.emit("iteration", seconds=seconds, counts=counts, stats=stats, source=SOURCE, **here, **optional)
        self._log.sync()
        self._progress.completed_iterations += 1


class LeadingToldClock(LeadingClock, ToldClock):
    """Rank 0's: what it does, all ranks do."""

    def attend(self, iteration: int) -> None:
        self._next = ("attend", (iteration,), {})
        ToldClock.attend(self, iteration)

    def beat(self) -> None:
        self._next = ("beat", (), {})
        ToldClock.beat(self)

    def tell(
        self,
        seconds: float,
        phases: Dict[str, float],
        counts: Dict[str, Any],
        stats: Dict[str, Any],
        **optional: Any,
    ) -> None:
        self._next = ("tell", (seconds, phases, counts, stats), optional)
        ToldClock.tell(self, seconds, phases, counts, stats, **optional)
