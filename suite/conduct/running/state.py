"""What the results folder already holds of a run. A run that is not there costs no module that reads bundles."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from suite.conduct.planning.request import RunState
from suite.spec.manifest import Manifest

if TYPE_CHECKING:
    from suite.bundle.store import Bundle
    from suite.conduct.planning.plan import Plan

Read = TypeVar("Read")
_REPEAT = re.compile(r"[1-9]\d{0,8}")


def row_of(run_id: str) -> str:
    """The id of a run up to the number of its repeat."""
    return run_id.rstrip("0123456789")


def by_repeat(folder: Path, row: str, suffix: str = "") -> dict[int, Path]:
    """What a folder holds of the runs of a row, in the order of their repeats. ``row``: as ``row_of`` has it."""
    found = {}
    for path in folder.glob(f"{row}*{suffix}") if folder.is_dir() else ():
        number = path.name.removeprefix(row).removesuffix(suffix)
        if _REPEAT.fullmatch(number):
            found[int(number)] = path
    return dict(sorted(found.items()))


def states(manifests: Iterable[Manifest], root: Path) -> list[tuple[Manifest, RunState]]:
    """Each run with what the results folder holds of it."""
    return [(manifest, state_of(root, manifest)) for manifest in manifests]


def state_of(root: Path, manifest: Manifest) -> RunState:
    """How far the run is, by its bundle; other drivers may be at work there, so that only a look under its lock
    (``suite.conduct.running.attic``) allows to change it."""
    path = root / manifest.run.id
    if not path.exists():
        return "to run"
    from suite.bundle.store import Bundle

    bundle = Bundle(path)
    if bundle.running():
        return "running"
    state = judged(bundle, manifest)
    return state if path.exists() else "to run"


def ended(plan: "Plan", root: Path, read: Callable[["Bundle"], Read]) -> Iterator[tuple[Manifest, "Bundle", Read]]:
    """The runs of a plan that have a bundle under ``root`` and are over, with what is read of those that can be."""
    from suite.bundle.derive import StillRunning
    from suite.bundle.store import Bundle, DamagedBundle

    for manifest in plan.manifests:
        bundle = Bundle(root / manifest.run.id)
        if bundle.path.is_dir() and not bundle.running():
            with suppress(DamagedBundle, StillRunning):
                yield manifest, bundle, read(bundle)


def judged(bundle: "Bundle", manifest: Manifest, is_over: bool = False) -> RunState:
    """The same of a bundle; ``is_over``: nobody else writes it. ``damaged`` is also one of another manifest."""
    from suite.bundle.derive import StillRunning, record_of
    from suite.bundle.store import DamagedBundle

    try:
        found = bundle.manifest()
        record = record_of(bundle, is_over)
    except StillRunning:
        return "running"
    except DamagedBundle:
        return "damaged"
    if (found.hash, found.run.id) != (manifest.hash, manifest.run.id):
        return "damaged"
    if record.status == "failed" and record.failure is not None and record.failure.kind == "disk_full":
        return "interrupted"  # it had no room, and is done again
    states: dict[str, RunState] = {"ok": "done", "failed": "failed before", "interrupted": "interrupted"}
    return states[record.status]
