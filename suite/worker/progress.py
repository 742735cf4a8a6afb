"""How far a rank has come: for the failure event, and told in heartbeats while nothing else is."""

import time
from dataclasses import dataclass
from typing import Optional

from suite.worker.events import EventLog

SETUP = "setup"
#: A heartbeat is written once in this share of the time after which a silent run is given up, within these bounds.
_SHARE_OF_SILENCE, _LEAST_SECONDS, _MOST_SECONDS = 1 / 20, 1.0, 30.0


def beat_seconds(silence_seconds: float) -> float:
    """Least time between a heartbeat and the event before it; without a limit on silence as with a very long one."""
    return min(max(silence_seconds * _SHARE_OF_SILENCE, _LEAST_SECONDS), _MOST_SECONDS)


@dataclass
class Progress:
    """The phase and iteration at work (iteration None before the first), and how many iterations are complete.

    ``log`` gets the heartbeats; without one there are none.
    """

    phase: str = SETUP
    iteration: Optional[int] = None
    completed_iterations: int = 0
    log: Optional[EventLog] = None
    beat_seconds: float = _MOST_SECONDS
    calls: int = 0

    def beat(self) -> None:
        """Work went on: a stage of the set-up is done, a model got a parameter or was run once more.

        Called by the work itself and never by a clock, so that a rank that is stuck goes silent. Writes a
        ``heartbeat`` where no event was written for ``beat_seconds``; else it costs a comparison of times.
        """
        self.calls += 1
        log = self.log
        if log is not None and time.monotonic() - log.written_at >= self.beat_seconds:
            log.emit("heartbeat", iteration=self.iteration, phase=self.phase, calls=self.calls)

    def tell(self, doing: str) -> None:
        """A stage of the set-up begins that may take long: what it is, in a few words, at once."""
        self.calls += 1
        if self.log is not None:
            self.log.emit("heartbeat", iteration=self.iteration, phase=self.phase, calls=self.calls, doing=doing)
