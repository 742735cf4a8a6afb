"""What the results folder already holds of a run, and moving aside what is to be done again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from suite.bundle.store import ATTIC, Bundle, DamagedBundle
from suite.conduct.planning.request import RunState
from suite.spec.manifest import Manifest


def state_of(root: Path, manifest: Manifest) -> RunState:
    """How far the run is that ``manifest`` asks for, judged from its bundle under ``root``."""
    path = root / manifest.run.id
    if not path.exists():
        return "to run"
    bundle = Bundle(path)
    try:
        if bundle.running():
            return "running"
        found = bundle.manifest()
        from suite.bundle.derive import record_of  # only where there is one

        record = record_of(bundle)
    except DamagedBundle:
        return "damaged"
    if (found.hash, found.run.id) != (manifest.hash, manifest.run.id):
        return "damaged"
    states: dict[str, RunState] = {"ok": "done", "failed": "failed before", "interrupted": "interrupted"}
    return states[record.status]


def move_aside(root: Path, run_id: str) -> Path:
    """Keep a bundle that is to be done again under ``attic/``; nothing is ever overwritten."""
    from suite.bundle.derive import record_of

    bundle = Bundle(root / run_id)
    with suppress(DamagedBundle):
        bundle.write_record(record_of(bundle))
    attic = root / ATTIC
    attic.mkdir(exist_ok=True)
    number = 1
    while (attic / f"{run_id}.{number}").exists():
        number += 1
    target = attic / f"{run_id}.{number}"
    (root / run_id).rename(target)
    return target
