"""Working through a plan: skip what is done, run the rest interleaved, keep to the budget, stop cleanly."""

import ctypes
import gc
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pydantic import Field

from suite.bundle.drafts import clear_drafts
from suite.bundle.record import Record
from suite.bundle.store import AlreadyThere, DamagedBundle
from suite.conduct.planning.plan import Plan
from suite.conduct.planning.request import RunState
from suite.conduct.running.attic import set_aside, write_missing_record
from suite.conduct.running.display import View as View
from suite.conduct.running.execute import execute
from suite.conduct.running.state import state_of, states
from suite.launch.outcome import Launcher
from suite.launch.processes import c_library
from suite.report.facts.suspect import is_suspect
from suite.report.formatting.numbers import counted
from suite.spec.base import Frozen
from suite.spec.manifest import Manifest


def give_back_freed() -> None:
    """Between runs; it takes a few milliseconds. A run leaves some 15 KB in circles, which Python looks for only once a
    quarter of all objects is new, and glibc keeps what is freed unless asked (malloc_trim(3), which others lack)."""
    gc.collect()
    trim = getattr(c_library(), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


class Settings(Frozen):
    """How a plan is worked through."""

    root: Path
    python: str
    pythons: dict[str, str] = Field(default={}, description="backend -> interpreter, of those with one of their own")
    budget_seconds: float | None = None
    retry_failed: bool = False

    def python_of(self, backend: str) -> str:
        """The interpreter of a backend's ranks; ``backend``: with its environment (``Backend.label``)."""
        return self.pythons.get(backend) or self.pythons.get(backend.partition("@")[0], self.python)


class _Seen(NamedTuple):
    """A run that ended: its seconds, those of one of its iterations (0: unknown), how many it counted, and how many
    runs were started together, which all took these seconds."""

    seconds: float
    each: float
    iterations: int
    together: int


class Ledger:
    """Runs are taken from ``waiting`` and reported by how they ended. Nothing here starts one."""

    def __init__(
        self, states: Sequence[tuple[Manifest, RunState]], settings: Settings, view: View, clock: Callable[[], float]
    ) -> None:
        self.waiting: list[Manifest] = []
        self.outcome: dict[str, list[str]] = {}
        self.settings, self.view, self._clock = settings, view, clock
        self._seen: dict[str, list[_Seen]] = {}  # by row
        self._started: dict[str, float] = {}
        clear_drafts(settings.root, {manifest.run.id for manifest, _ in states})
        for manifest, state in states:
            self._sort(manifest, state)
        self._began = clock()
        self.to_come, self._together = 0.0, 1  # seconds after those that wait; runs of the last start

    def seconds_left(self) -> float:
        """Of the budget; without one there is no end of them."""
        budget = self.settings.budget_seconds
        return math.inf if budget is None else budget - (self._clock() - self._began)

    def take(self, fits: Callable[[Manifest], bool] = lambda manifest: True, is_begun: bool = False) -> Manifest | None:
        """The next run for which there is room; ``None`` when none fits, none is left, or the budget is spent.

        One that another driver of the same folder has begun meanwhile is left to it, or done again where that was cut
        off. ``is_begun``: it takes turns with one that was taken before, and the budget did for both.
        """
        root = self.settings.root
        while (manifest := next(filter(fits, self.waiting), None)) and (root / manifest.run.id).exists():
            self.waiting.remove(manifest)
            self._sort(manifest, state_of(root, manifest))
        if manifest is None:
            return None
        left = self.seconds_left()
        if not is_begun and (left <= 0 or (self._expected(manifest) or 0.0) > left):
            runs = counted(len(self.waiting), "run")
            self.view.notice(f"budget spent: {runs} left, for the same command to go on with")
            for each in self.waiting:
                self._note("left_by_budget", each)
            self.waiting.clear()
            return None
        self.view.run_started(manifest, self._to_the_end(left))
        self.waiting.remove(manifest)
        self._together = 1 + (self._together if is_begun else 0)
        self._started[manifest.run.id] = self._clock()
        return manifest

    def ended(self, manifest: Manifest, result: Record | DamagedBundle | AlreadyThere) -> None:
        """Note how a run ended that was taken. One that was interrupted is neither measured nor failed."""
        give_back_freed()
        started = self._started.pop(manifest.run.id)
        if isinstance(result, AlreadyThere):
            return self._leave_to_others(manifest)
        if isinstance(result, DamagedBundle):
            self.view.notice(f"{manifest.run.id} left a damaged bundle: {result}")
            return self._note("failed", manifest)
        seconds, lasted, each = self._clock() - started, result.iterations.seconds, 0.0
        if result.status == "ok" and lasted:
            each = min(fmean(lasted), seconds / len(lasted))
        self._seen.setdefault(manifest.hash, []).append(_Seen(seconds, each, manifest.iterations, self._together))
        self.view.run_ended(manifest, result)
        if result.status != "interrupted":
            self._note("measured" if result.status == "ok" else "failed", manifest)
        if result.status == "ok" and is_suspect(result):
            self._note("suspect", manifest)
        return None

    def _expected(self, manifest: Manifest) -> float | None:
        """Seconds that this run should take; null while its row was never run."""
        seen = self._seen.get(manifest.hash)
        if not seen:
            return None
        return fmean(one.seconds + one.together * one.each * (manifest.iterations - one.iterations) for one in seen)

    def _to_the_end(self, left: float) -> float | None:
        """Seconds for all that waits, where none is started after so many; null while nothing was run yet. A row that
        was never run should take the mean of the others; each run has its share of its start's."""
        if not self._seen:
            return None
        usual = fmean(fmean(one.seconds / one.together for one in seen) for seen in self._seen.values())
        total = self.to_come
        for manifest in self.waiting:
            seconds = self._expected(manifest)
            total += usual if seconds is None else seconds / self._seen[manifest.hash][-1].together
        return min(total, left)

    def _sort(self, manifest: Manifest, state: RunState) -> None:
        """Into the list that a run belongs to. What is to be done again is moved aside, if it still is by then."""
        if state != "to run" and self._is_to_do(state):
            state, kept = set_aside(self.settings.root, manifest, self._is_to_do)
            if kept is not None:
                self.view.notice(f"{manifest.run.id} is {state}: kept as {kept}, done again")
                state = "to run"
        if state == "to run":
            self.waiting.append(manifest)
        elif state in ("done", "failed before"):
            write_missing_record(self.settings.root, manifest)
            self._note("done_before" if state == "done" else "failed_before", manifest)
        else:
            self._leave_to_others(manifest)

    def _is_to_do(self, state: RunState) -> bool:
        again = ("failed before",) if self.settings.retry_failed else ()
        return state in ("to run", "interrupted", "damaged", *again)

    def _leave_to_others(self, manifest: Manifest) -> None:
        self._note("busy", manifest)
        self.view.notice(f"{manifest.run.id} is being run by another process and was left to it")

    def _note(self, what: str, manifest: Manifest) -> None:
        self.outcome.setdefault(what, []).append(manifest.run.id)


#: Runs to add, and seconds that others are expected to take after them.
Further = Callable[[Ledger], tuple[Sequence[Manifest], float]]
#: Takes runs from a ledger until none is left; whether somebody asked to stop.
Way = Callable[[Ledger, Launcher], bool]


class Summary(Frozen):
    """What became of a plan: run ids by what happened to them; those of ``suspect`` are among those of ``measured``."""

    measured: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    done_before: tuple[str, ...] = ()
    failed_before: tuple[str, ...] = ()
    left_by_budget: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    suspect: tuple[str, ...] = ()
    interrupted: bool = False


def one_by_one(ledger: Ledger, launcher: Launcher, once: bool = False) -> bool:
    """Work until nothing is left, or one run was made; whether somebody asked to stop."""
    while (manifest := ledger.take()) is not None:
        result: Record | DamagedBundle | AlreadyThere
        try:
            python = ledger.settings.python_of(manifest.backend.label)
            result = execute(manifest, ledger.settings.root, launcher, python, ledger.view.event)
        except (DamagedBundle, AlreadyThere) as error:
            result = error
        ledger.ended(manifest, result)
        if isinstance(result, Record) and result.status == "interrupted":
            return True
        if once:
            break
    return False


def run_plan(
    plan: Plan,
    settings: Settings,
    launcher: Launcher,
    view: View,
    way: Way = one_by_one,
    further: Further | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Summary:
    """Run what is to be run, one after the other or in another ``way``, and then what ``further`` asks for once those
    before have ended, until it asks for nothing, or the budget is spent. A failed run never stops the rest; an
    interrupt stops after its run was recorded. Raises UsageError when the results folder cannot take a bundle."""
    ledger = Ledger(states(plan.manifests, settings.root), settings, view, clock)
    gc.collect()
    gc.freeze()  # modules are there for ever, and need not be looked through between runs
    view.begin(len(plan.manifests), len(plan.manifests) - len(ledger.waiting))
    try:
        interrupted = way(ledger, launcher)
        while further is not None and not (interrupted or "left_by_budget" in ledger.outcome):
            following, ledger.to_come = further(ledger)
            if not following:
                break
            ledger.waiting += following
            interrupted = way(ledger, launcher)
    finally:
        view.end()
    return Summary(interrupted=interrupted, **{what: tuple(ids) for what, ids in ledger.outcome.items()})
