"""What each rank tells of its iterations, beside how long they took by the times of its events."""

from __future__ import annotations

from typing import NamedTuple

from suite.bundle.event_fields import TRAINER
from suite.bundle.events import Event


class ToldPhase(NamedTuple):
    """One phase of one iteration. ``seconds``: until every rank was there. ``elapsed``: from the event before it to its
    own; null where there was none."""

    name: str
    own_seconds: float
    seconds: float
    elapsed: float | None


class ToldIteration(NamedTuple):
    """One iteration. ``elapsed``: from the event of the iteration before, of the set-up, or of its turn, to its own.

    ``by_trainer``: its seconds are those of the trainer's own log, of which every rank tells the same.
    """

    number: int
    seconds: float
    elapsed: float | None
    phases: tuple[ToldPhase, ...]
    by_trainer: bool


def told_by(events: tuple[Event, ...]) -> list[ToldIteration]:
    """The completed iterations of one rank, in order."""
    told: list[ToldIteration] = []
    phases: list[ToldPhase] = []
    before: float | None = None
    iteration_before: float | None = None
    for event in events:
        kind, time = event["kind"], event["time"]
        if kind == "phase":
            since = None if before is None else time - before
            own = event["seconds"]
            phases.append(ToldPhase(event["phase"], own, own + event["wait_seconds"], since))
        elif kind == "iteration":
            since = None if iteration_before is None else time - iteration_before
            by_trainer = event.get("source") == TRAINER
            told.append(ToldIteration(event["iteration"], event["seconds"], since, tuple(phases), by_trainer))
            phases, iteration_before = [], time
        elif kind == "turn":  # others worked until now
            iteration_before = time
        elif kind not in ("environment", "memory"):
            continue
        elif not told and not phases:
            iteration_before = time
        before = time
    return told
