"""Ports for ranks to meet at."""

from __future__ import annotations

import random
import socket
import threading
from collections import deque
from pathlib import Path

#: first and last port that Linux gives connections that go out
GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _TRIES = 20_000, 100
_told: deque[int] = deque(maxlen=64)
_telling = threading.Lock()


def free_port() -> int:
    """A TCP port on which nobody listens on any interface, where there is one below those of connections that go out.

    Seconds go by until a rank listens there. On a busy machine one of the others is then somebody's. None is told twice
    in a row: ranks of several runs may be on their way to theirs at the same time.
    """
    try:
        end = int(GIVEN_OUT.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        end = _LOWEST
    candidates = range(_LOWEST, end)
    tries = random.SystemRandom().sample(candidates, min(_TRIES, len(candidates)))
    with _telling:
        for port in (*tries, *[0] * _TRIES):
            with socket.socket() as probe:
                try:
                    probe.bind(("", port))
                except OSError:
                    continue
                found = int(probe.getsockname()[1])
            if found not in _told:
                _told.append(found)
                return found
    raise OSError("this machine has no free TCP port")
