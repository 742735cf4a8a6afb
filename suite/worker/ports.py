"""Ports at which processes of a run meet. The driver has its own (``suite.launch.local``): the two share no code."""

import random
import socket

from suite.worker.process import read_text

#: first and last port that Linux gives connections that go out
GIVEN_OUT = "/proc/sys/net/ipv4/ip_local_port_range"
_LOWEST, _TRIES = 20000, 100


def free_port() -> int:
    """A TCP port of this node on which nobody listens, where there is one below those of connections that go out.

    Seconds go by until somebody listens there: one of the others may be a connection's by then.
    """
    given = (read_text(GIVEN_OUT) or str(_LOWEST)).split()[0]
    candidates = range(_LOWEST, int(given) if given.isdigit() else _LOWEST)
    for port in (*random.SystemRandom().sample(candidates, min(_TRIES, len(candidates))), 0):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("this machine has no free TCP port")
