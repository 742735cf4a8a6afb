"""The event stream of one rank: a line in its file at once, on disk soon after, on standard output from rank 0."""

import json
import os
import sys
import threading
import time
from typing import Any, Dict, Iterator, Optional

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
        self._rank = rank
        self._mirror = mirror
        self._longest_line = _LONGEST_LINE - len(STDOUT_PREFIX) if in_pieces else None
        self._seq = 0
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
        event: Dict[str, Any] = {"kind": kind, "rank": self._rank, "time": time.time(), "seq": self._seq}
        event.update(fields)
        self._seq += 1
        line = _ENCODER.encode(event) + "\n"
        if self._mirror:
            is_long = self._longest_line is not None and len(line) > self._longest_line
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
            piece: Dict[str, Any] = {"kind": "piece", "rank": self._rank, "seq": self._seq - 1, "part": index}
            piece.update(parts=len(starts), text=line[start : start + _PIECE_CHARACTERS])
            yield _ENCODER.encode(piece) + "\n"

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
