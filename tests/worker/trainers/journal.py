"""A clock that writes down what a trainer's hooks tell it, instead of timing it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from suite.worker.trainers.clock import NullClock


class Journal(NullClock):
    """``lines``: edges in order. ``finished``: what each iteration ended with. ``calls``: of the models it watches."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.finished: list[dict[str, Any]] = []
        self.calls = 0

    def watch(self, *models: Any) -> None:
        for model in models:
            model.register_forward_hook(self._count)

    def _count(self, *given: Any) -> None:
        self.calls += 1

    def begin(self, iteration: int) -> None:
        self.lines.append(f"begin {iteration}")

    def open(self, phase: str, alone: bool = False) -> None:
        self.lines.append(f"open {phase}{' alone' if alone else ''}")

    def close(self, more: bool = False) -> None:
        self.lines.append(f"close{' more' if more else ''}")

    @contextmanager
    def phase(self, name: str, more: bool = False, alone: bool = False) -> Iterator[None]:
        self.open(name, alone)
        yield
        self.close(more)

    @contextmanager
    def detail(self, name: str) -> Iterator[None]:
        self.lines.append(f"part {name}")
        yield
        self.lines.append(f"part over {name}")

    def stop(self) -> None:
        self.lines.append("stop")

    def finish(self, counts: dict[str, int], stats: dict[str, float | None], **optional: Any) -> None:
        self.finished.append({"counts": counts, "stats": stats, **optional})
