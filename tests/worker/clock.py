"""A clock that goes on only when it is told to."""

from types import ModuleType

import pytest


class Clock:
    """In the place of a module's ``time``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.now = 1000.0
        for module in modules:
            monkeypatch.setattr(module, "time", self)

    def time(self) -> float:
        return self.now

    monotonic = perf_counter = time
