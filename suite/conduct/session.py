"""Working through a plan: skip what is done, run the rest interleaved, keep to the budget, stop cleanly."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from suite.bundle.record import Record
from suite.bundle.store import DamagedBundle
from suite.conduct.estimate import Durations
from suite.conduct.execute import execute
from suite.conduct.plan import Plan
from suite.conduct.request import RunState
from suite.conduct.state import move_aside, state_of
from suite.launch.outcome import Launcher
from suite.spec.base import Frozen
from suite.spec.manifest import Manifest


class View(Protocol):
    """What the session tells while it works; a display, or nothing."""

    def begin(self, total: int, done: int) -> None: ...

    def run_started(self, manifest: Manifest, seconds_left: float | None) -> None: ...

    def event(self, event: dict) -> None: ...

    def run_ended(self, manifest: Manifest, record: Record) -> None: ...

    def notice(self, text: str) -> None: ...

    def end(self) -> None: ...


class Summary(Frozen):
    """What became of a plan: run ids by what happened to them."""

    measured: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    done_before: tuple[str, ...] = ()
    failed_before: tuple[str, ...] = ()
    left_by_budget: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    interrupted: bool = False


class Settings(Frozen):
    """How a plan is worked through."""

    root: Path
    python: str
    budget_seconds: float | None = None
    retry_failed: bool = False


def states(plan: Plan, root: Path) -> list[tuple[Manifest, RunState]]:
    """Every run of the plan with what the results folder holds of it."""
    return [(manifest, state_of(root, manifest)) for manifest in plan.manifests]


def run_plan(
    plan: Plan, settings: Settings, launcher: Launcher, view: View, clock: Callable[[], float] = time.monotonic
) -> Summary:
    """Run what is to be run. A failed run never stops the rest; an interrupt stops after its run was recorded.

    Raises UsageError when the results folder cannot take a bundle.
    """
    outcome: dict[str, list[str]] = {name: [] for name in Summary.model_fields if name != "interrupted"}
    waiting: list[Manifest] = []
    for manifest, state in states(plan, settings.root):
        if state == "done":
            outcome["done_before"].append(manifest.run.id)
        elif state == "failed before" and not settings.retry_failed:
            outcome["failed_before"].append(manifest.run.id)
        elif state == "running":
            outcome["busy"].append(manifest.run.id)
            view.notice(f"{manifest.run.id} is being run by another process and was left to it")
        else:
            if state != "to run":
                kept = move_aside(settings.root, manifest.run.id)
                view.notice(f"{manifest.run.id} is {state}: kept as {kept}, done again")
            waiting.append(manifest)
    view.begin(len(plan.manifests), len(plan.manifests) - len(waiting))
    try:
        interrupted = _run_waiting(waiting, settings, launcher, view, clock, outcome)
    finally:
        view.end()
    return Summary(interrupted=interrupted, **{name: tuple(ids) for name, ids in outcome.items()})


def run_one(manifest: Manifest, root: Path, launcher: Launcher, python: str, view: View) -> Record:
    """One run outside of any plan, shown like those of a plan. Raises UsageError when its bundle cannot be made."""
    view.begin(1, 0)
    try:
        view.run_started(manifest, None)
        record = execute(manifest, root, launcher, python, view.event)
        view.run_ended(manifest, record)
    finally:
        view.end()
    return record


def _run_waiting(
    waiting: list[Manifest],
    settings: Settings,
    launcher: Launcher,
    view: View,
    clock: Callable[[], float],
    outcome: dict[str, list[str]],
) -> bool:
    began = clock()
    durations = Durations()
    for index, manifest in enumerate(waiting):
        expected = durations.expect(manifest)
        left = None if settings.budget_seconds is None else settings.budget_seconds - (clock() - began)
        if left is not None and (left <= 0 or (expected or 0.0) > left):
            outcome["left_by_budget"] += [rest.run.id for rest in waiting[index:]]
            view.notice(f"budget spent: {len(waiting) - index} runs are left; the same command goes on with them")
            return False
        view.run_started(manifest, durations.expect_all(waiting[index:]))
        started = clock()
        try:
            record = execute(manifest, settings.root, launcher, settings.python, view.event)
        except DamagedBundle as error:
            view.notice(f"{manifest.run.id} left a damaged bundle: {error}")
            outcome["failed"].append(manifest.run.id)
            continue
        durations.note(manifest, clock() - started)
        view.run_ended(manifest, record)
        if record.status == "interrupted":
            return True
        outcome["measured" if record.status == "ok" else "failed"].append(manifest.run.id)
    return False
