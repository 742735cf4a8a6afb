"""Tasks on lanes: what a rank does in the order of its program, waiting for others."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Task:
    """Work of ``seconds`` on every one of ``lanes`` at once, begun when all of them are free and ``after`` is done.

    ``name`` is what a trace shows, ``cause`` what its seconds count as, ``waits`` what a lane's idle time before it
    counts as.
    """

    lanes: tuple[int, ...]
    seconds: float
    after: tuple[int, ...] = ()
    name: str = ""
    cause: str = ""
    waits: str = "waiting"


class Span(NamedTuple):
    """When a task ran, in seconds from the start."""

    task: Task
    began: float
    ended: float


class Timeline:
    """When tasks run: each lane works through its own in the order in which they are added, and whatever one waits for
    is added before it."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._free: dict[int, float] = defaultdict(float)

    def add(self, task: Task) -> int:
        """The task's number, by which others wait for it."""
        done = [self.spans[number].ended for number in task.after]
        began = max([0.0, *(self._free[lane] for lane in task.lanes), *done])
        self._free.update(dict.fromkeys(task.lanes, began + task.seconds))
        self.spans.append(Span(task, began, began + task.seconds))
        return len(self.spans) - 1

    def barrier(self, lanes: Iterable[int], after: Iterable[int] = (), waits: str = "waiting") -> int:
        """A moment that all lanes reach together."""
        return self.add(Task(tuple(lanes), 0.0, tuple(after), "", "", waits))


def account(spans: Iterable[Span], lanes: Sequence[int], end: float) -> dict[str, float]:
    """Mean seconds of the ``lanes`` by cause, from 0 to ``end``: what each did, and what it waited for. They add up to
    ``end``."""
    causes: dict[str, float] = defaultdict(float)
    free = dict.fromkeys(lanes, 0.0)
    for task, began, ended in sorted(spans, key=lambda span: span.began):
        for lane in task.lanes:
            if lane in free and began < end:
                causes[task.waits] += max(0.0, began - free[lane])
                causes[task.cause] += min(ended, end) - began
                free[lane] = ended
    for at in free.values():
        causes["waiting"] += max(0.0, end - at)
    return {cause: seconds / len(lanes) for cause, seconds in causes.items() if seconds > 0}
