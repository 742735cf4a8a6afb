"""A container's standard output and error, to the last byte, also over a break of the connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from docker import APIClient
from urllib3.exceptions import HTTPError

from suite.launch.requests import Mailbox

Stream = Literal["stdout", "stderr"]


class Output:
    """Reads in threads of its own and tells a mailbox: ``on_data`` for each piece, ``on_end`` once when all is read.

    ``attach`` before the container starts: what it writes from its first byte on is then read as it is. ``resume``
    after a break goes on from the runtime's log at the bytes reached; the log replaces bytes that are no UTF-8.
    """

    def __init__(
        self,
        api: APIClient,
        container: str,
        mailbox: Mailbox,
        on_data: Callable[[Stream, bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._api, self._container, self._mailbox = api, container, mailbox
        self._on_data, self._on_end = on_data, on_end
        self._read: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._open: list[Any] = []
        self._unfinished = 0
        self._lock = threading.Lock()

    def attach(self) -> None:
        """Listen from now on. Raises what the runtime raises."""
        stream = self._api.attach(self._container, stdout=True, stderr=True, stream=True, demux=True)
        self._follow([(stream, self._both)])

    def resume(self) -> None:
        """Go on from the runtime's log. Raises what the runtime raises."""
        streams = []
        for name in self._read:
            wanted = {"stdout": name == "stdout", "stderr": name == "stderr"}
            stream = self._api.logs(self._container, stream=True, follow=True, **wanted)
            streams.append((stream, self._rest(name, self._read[name])))
        self._follow(streams)

    def close(self) -> None:
        """End the connections; the threads let go of them."""
        with self._lock:
            for stream in self._open:
                with suppress(OSError):  # the other side has closed it already
                    stream.close()

    def _follow(self, streams: list[tuple[Any, Callable[[Any], None]]]) -> None:
        self._unfinished = len(streams)
        for stream, take in streams:
            self._open.append(stream)
            threading.Thread(target=self._drain, args=(stream, take), daemon=True).start()

    def _drain(self, stream: Any, take: Callable[[Any], None]) -> None:
        try:
            for piece in stream:
                take(piece)
        except (OSError, HTTPError, ValueError):
            pass  # the connection is broken, or was closed under a read: in either case this stream has ended
        with self._lock:
            self._open.remove(stream)
            _let_go(stream)
            self._unfinished -= 1
            is_last = self._unfinished == 0
        if is_last:
            self._mailbox.post(self._on_end)

    def _both(self, piece: tuple[bytes | None, bytes | None]) -> None:
        for name, data in zip(self._read, piece, strict=True):
            if data:
                self._give(name, data)

    def _rest(self, name: Stream, known: int) -> Callable[[bytes], None]:
        """Takes the pieces of a stream from its beginning, and gives what lies behind the first ``known`` bytes."""
        left = known

        def take(data: bytes) -> None:
            nonlocal left
            skipped = min(left, len(data))
            left -= skipped
            if skipped < len(data):
                self._give(name, data[skipped:])

        return take

    def _give(self, name: Stream, data: bytes) -> None:
        self._read[name] += len(data)
        self._mailbox.post(lambda: self._on_data(name, data))


def _let_go(stream: Any) -> None:
    """Close a stream's socket now: the SDK leaves it to the collector of cycles, which may take hundreds of runs."""
    response = getattr(stream, "_response", None)
    if response is not None:
        response.close()
