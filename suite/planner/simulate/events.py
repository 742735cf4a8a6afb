"""A discrete-event simulation of tasks on lanes: what a rank does in the order of its program, waiting for others."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


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


@dataclass
class Program:
    """Tasks in the order in which each lane works through its own."""

    tasks: list[Task] = field(default_factory=list)

    def add(self, task: Task) -> int:
        """The task's number, by which others wait for it."""
        self.tasks.append(task)
        return len(self.tasks) - 1

    def barrier(self, lanes: Iterable[int], after: Iterable[int] = (), waits: str = "waiting") -> int:
        """A moment that all lanes reach together."""
        return self.add(Task(tuple(lanes), 0.0, tuple(after), "", "", waits))


@dataclass(frozen=True)
class Span:
    """When a task ran, in seconds from the start."""

    task: int
    began: float
    ended: float


def run(program: Program) -> list[Span]:
    """When each task ran, in the order of the tasks."""
    tasks = program.tasks
    queues: dict[int, list[int]] = defaultdict(list)
    dependents: dict[int, list[int]] = defaultdict(list)
    missing = [0] * len(tasks)
    for number, task in enumerate(tasks):
        missing[number] = len(task.after) + len(task.lanes)
        for lane in task.lanes:
            queues[lane].append(number)
        for before in task.after:
            dependents[before].append(number)
    ready_at = [0.0] * len(tasks)
    places = dict.fromkeys(queues, 0)
    spans: list[Span | None] = [None] * len(tasks)
    ends: list[tuple[float, int]] = []

    def less(number: int, at: float) -> None:
        """One thing fewer that the task waits for; it begins where it was the last."""
        missing[number] -= 1
        ready_at[number] = max(ready_at[number], at)
        if missing[number] == 0:
            began = ready_at[number]
            spans[number] = Span(number, began, began + tasks[number].seconds)
            heapq.heappush(ends, (began + tasks[number].seconds, number))

    for queue in queues.values():
        less(queue[0], 0.0)
    for number, task in enumerate(tasks):
        if not task.lanes and not task.after:
            missing[number] += 1
            less(number, 0.0)
    while ends:
        at, number = heapq.heappop(ends)
        for lane in tasks[number].lanes:
            places[lane] += 1
            if places[lane] < len(queues[lane]):
                less(queues[lane][places[lane]], at)
        for other in dependents[number]:
            less(other, at)
    done = [span for span in spans if span is not None]
    assert len(done) == len(tasks), "no task waits for itself"
    return done


def account(program: Program, spans: Sequence[Span], lanes: Sequence[int], end: float) -> dict[str, float]:
    """Mean seconds of the ``lanes`` by cause, from 0 to ``end``: what each did, and what it waited for. They add up to
    ``end``."""
    causes: dict[str, float] = defaultdict(float)
    wanted, free = set(lanes), dict.fromkeys(lanes, 0.0)
    for span in sorted(spans, key=lambda span: (span.began, span.task)):
        task = program.tasks[span.task]
        for lane in task.lanes:
            if lane in wanted and span.began < end:
                causes[task.waits] += max(0.0, span.began - free[lane])
                causes[task.cause] += min(span.ended, end) - span.began
                free[lane] = span.ended
    for lane in lanes:
        causes["waiting"] += max(0.0, end - free[lane])
    return {cause: seconds / len(lanes) for cause, seconds in causes.items() if seconds > 0}
