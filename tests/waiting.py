"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
#: A bound for what never comes, not for what is slow: a busy machine takes many times as long as an idle one.
SECONDS = 120.0


def wait_until(condition: Callable[[], T], seconds: float = SECONDS, told: Callable[[], object] = lambda: "") -> T:
    """The first true value of ``condition``; fails with what ``told`` says where none came in ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it never came: {told()}"
        time.sleep(0.05)
    return value
