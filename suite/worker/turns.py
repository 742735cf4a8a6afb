"""Rows that take turns: a rank asks its driver (``suite.launch.turns``) for the next, and sleeps until it has it."""

import json
import socket
from typing import Any, Dict, Mapping, Optional

#: address of the driver's socket: a path, or behind ``@`` an abstract name (unix(7))
VARIABLE = "SUITE_TURNS"


class DriverGoneError(Exception):
    """Nobody is left who gives turns."""


class Turns:
    """This rank's; where nobody gives any, all time is its own."""

    def __init__(self, channel: Optional[socket.socket] = None) -> None:
        self._channel, self._left = channel, 0

    @property
    def are_given(self) -> bool:
        return self._channel is not None

    @property
    def is_over(self) -> bool:
        """Whether this turn has no iteration left, and another is to be asked for."""
        return self.are_given and self._left < 1

    def begin_iteration(self) -> None:
        self._left -= 1

    def ask(self) -> None:
        """End the turn that there was, and wait for the next, with as many iterations as the driver says. The last one
        ends with this process, or its run. Raises DriverGoneError."""
        if self._channel is None:
            return
        try:
            self._channel.sendall(b"?")
            self._left = self._channel.recv(1)[0]
        except (OSError, IndexError) as error:  # the second where the driver has closed its end
            raise DriverGoneError("the driver that gives turns is gone") from error


def open_turns(environment: Mapping[str, str], manifest: Dict[str, Any], rank: int) -> Turns:
    """Connect to the driver that the environment names; without one there are no turns. Raises DriverGoneError."""
    address = environment.get(VARIABLE)
    if not address:
        return Turns()
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect("\0" + address[1:] if address.startswith("@") else address)
        channel.sendall(json.dumps({"run": manifest["run"]["id"], "rank": rank}).encode() + b"\n")
    except OSError as error:
        raise DriverGoneError("the driver that gives turns is gone: {}".format(error)) from error
    return Turns(channel)
