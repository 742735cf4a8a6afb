"""A clock that goes on only when it is told to, or by one step each time it is read."""

from types import ModuleType

import pytest


class Clock:
    """In the place of a module's ``time``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType, step: float = 0.0) -> None:
        self.now, self._step = 1000.0, step
        for module in modules:
            monkeypatch.setattr(module, "time", self)

    def time(self) -> float:
        self.now += self._step
        return self.now

    monotonic = perf_counter = time
