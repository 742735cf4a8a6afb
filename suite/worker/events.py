"""The event stream of one rank: a line in its file at once, on disk soon after, on standard output from rank 0."""

import json
import os
import queue
import sys
import threading
import time
from typing import Any, Dict, Optional

STDOUT_PREFIX = "::suite:: "
EVENTS_SCHEMA = "suite/events/1"
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class EventLog:
    """Appends events to ``folder/events/rank-N.jsonl``.

    A line is handed to the kernel as it happens, so a killed process loses nothing; ``sync`` asks a background
    thread to put the file on disk, so that a slow disk does not stop the rank.
    """

    def __init__(self, folder: str, rank: int, mirror: bool) -> None:
        """``mirror``: repeat each line on standard output. Raises OSError where the file cannot be made."""
        events = os.path.join(folder, "events")
        os.makedirs(events, exist_ok=True)
        self.path = os.path.join(events, "rank-{}.jsonl".format(rank))
        self._rank = rank
        self._mirror = mirror
        self._seq = 0
        self._file = open(self.path, "wb")  # noqa: SIM115 - open as long as the run
        self._requests: "queue.Queue[bool]" = queue.Queue()
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
            sys.stdout.write(STDOUT_PREFIX + line)
            sys.stdout.flush()
        self._file.write(line.encode())
        self._file.flush()

    def sync(self) -> None:
        """Ask for what was written so far to be put on disk; returns at once."""
        self._requests.put(True)

    def close(self) -> None:
        """Put everything on disk and close the file."""
        self._requests.put(False)
        self._syncer.join()
        self._file.close()

    def _sync_on_request(self) -> None:
        go_on = True
        while go_on:
            go_on = self._requests.get()
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                self._sync_error = error
