"""Working through a plan: skip what is done, run the rest interleaved, keep to the budget, stop cleanly."""

import gc
import time
from collections.abc import Callable, Sequence
from itertools import count

from suite.bundle.record import Record
from suite.bundle.store import AlreadyThere, DamagedBundle
from suite.conduct.planning.plan import Plan
from suite.conduct.running.execute import execute
from suite.conduct.running.ledger import Ledger, Settings, View
from suite.conduct.running.state import states
from suite.launch.outcome import Launcher
from suite.spec.base import Frozen
from suite.spec.manifest import Manifest

#: Runs to add, and seconds that others are expected to take after them.
Further = Callable[[Ledger], tuple[Sequence[Manifest], float]]
#: Takes runs from a ledger until none is left; whether somebody asked to stop.
Way = Callable[[Ledger, Settings, Launcher, View], bool]


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


def one_by_one(ledger: Ledger, settings: Settings, launcher: Launcher, view: View, most: int | None = None) -> bool:
    """Work until nothing is left, or so many runs were made; whether somebody asked to stop."""
    for _ in count() if most is None else range(most):
        manifest = ledger.take()
        if manifest is None:
            break
        result: Record | DamagedBundle | AlreadyThere
        try:
            python = settings.python_of(manifest.backend.label)
            result = execute(manifest, settings.root, launcher, python, view.event)
        except (DamagedBundle, AlreadyThere) as error:
            result = error
        ledger.ended(manifest, result)
        if isinstance(result, Record) and result.status == "interrupted":
            return True
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
    before have ended, until it asks for nothing, or the budget is spent.

    A failed run never stops the rest; an interrupt stops after its run was recorded. Raises UsageError when the results
    folder cannot take a bundle.
    """
    ledger = Ledger(states(plan.manifests, settings.root), settings, view, clock)
    gc.collect()
    gc.freeze()  # modules are there for ever, and need not be looked through between runs
    view.begin(len(plan.manifests), len(plan.manifests) - len(ledger.waiting))
    try:
        interrupted = way(ledger, settings, launcher, view)
        while further is not None and not (interrupted or ledger.spent):
            following, seconds_to_come = further(ledger)
            if not following:
                break
            ledger.add(following, seconds_to_come)
            interrupted = way(ledger, settings, launcher, view)
    finally:
        view.end()
    return Summary(interrupted=interrupted, **{what: tuple(ids) for what, ids in ledger.outcome.items()})
