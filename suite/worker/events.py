"""The event stream of one rank: a line in its file at once, on disk soon after, on standard output from rank 0."""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Iterator, Optional

STDOUT_PREFIX = "::suite:: "
EVENTS_SCHEMA = "suite/events/1"
#: Longer lines may be cut, or mixed with another rank's, on their way to the launcher: srun carries lines of
#: 1,024 bytes, a pipe writes 4,096 at once. The text of a piece can double when it is quoted.
_LONGEST_LINE = 1000
_PIECE_CHARACTERS = 400
#: A flush slows the rank whose work it runs beside, so there is at most one in this time.
_SECONDS_BETWEEN_FLUSHES = 1.0
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class EventLog:
    """Appends events to ``folder/events/rank-N.jsonl``.

    A line is handed to the kernel as it happens, so a killed process loses nothing; ``sync`` asks a background
    thread to put the file on disk within about a second, so that a slow disk does not stop the rank.
    ``folder``: the bundle's. ``written_at``: when the last line was written (``time.monotonic``).
    """

    def __init__(self, folder: str, rank: int, mirror: bool, in_pieces: bool = False) -> None:
        """``mirror``: repeat each line on standard output, a long one ``in_pieces`` where output is shared.

        Raises OSError where the file cannot be made.
        """
        events = os.path.join(folder, "events")
        os.makedirs(events, exist_ok=True)
        self.folder = folder
        self.path = os.path.join(events, "rank-{}.jsonl".format(rank))
        self._rank, self._seq = rank, 0
        self._mirror, self._in_pieces = mirror, in_pieces
        self.written_at = time.monotonic()
        self._file = open(self.path, "wb")  # noqa: SIM115 - open as long as the run
        self._requested, self._closing = threading.Event(), threading.Event()
        self._sync_error: Optional[OSError] = None
        self._syncer = threading.Thread(target=self._sync_on_request, name="event-sync", daemon=True)
        self._syncer.start()

    def emit(self, kind: str, **fields: Any) -> None:
        """Write one event. Raises OSError of this write or of an earlier ``sync``."""
        if self._sync_error is not None:
            raise self._sync_error
        event = {"kind": kind, "rank": self._rank, "time": time.time(), "seq": self._seq, **fields}
        self._seq += 1
        line = _ENCODER.encode(event) + "\n"
        if self._mirror:
            is_long = self._in_pieces and len(STDOUT_PREFIX + line) > _LONGEST_LINE
            for piece in self._pieces(line) if is_long else (line,):
                sys.stdout.write(STDOUT_PREFIX + piece)
                sys.stdout.flush()
        self._file.write(line.encode())
        self._file.flush()
        self.written_at = time.monotonic()

    def sync(self) -> None:
        """Ask for what was written so far to be put on disk; returns at once."""
        self._requested.set()

    def close(self) -> None:
        self._closing.set()
        self._requested.set()
        self._syncer.join()
        self._file.close()

    def _pieces(self, line: str) -> Iterator[str]:
        """A long event as several short ones of the kind ``piece``, whose texts together are its line."""
        starts = range(0, len(line), _PIECE_CHARACTERS)
        for index, start in enumerate(starts):
            part = {"part": index, "parts": len(starts), "text": line[start : start + _PIECE_CHARACTERS]}
            yield _ENCODER.encode({"kind": "piece", "rank": self._rank, "seq": self._seq - 1, **part}) + "\n"

    def _sync_on_request(self) -> None:
        while not self._closing.wait(_SECONDS_BETWEEN_FLUSHES):
            self._requested.wait()
            self._requested.clear()
            self._put_on_disk()
        self._put_on_disk()

    def _put_on_disk(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self._sync_error = error


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

    phase: str = "setup"
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
