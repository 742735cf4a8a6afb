"""What the results folder already holds of a run, and moving aside what is to be done again."""

from __future__ import annotations

from pathlib import Path

from suite.bundle.derive import derive
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.conduct.request import RunState
from suite.spec.manifest import Manifest

ATTIC = "attic"


def state_of(root: Path, manifest: Manifest) -> RunState:
    """How far the run is that ``manifest`` asks for, judged from its bundle under ``root``."""
    path = root / manifest.run.id
    if not path.exists():
        return "to run"
    bundle = Bundle(path)
    if bundle.running():
        return "running"
    try:
        found = bundle.manifest()
        record = bundle.record() or settle(bundle)
    except DamagedBundle:
        return "damaged"
    if found.hash != manifest.hash:
        return "damaged"
    states: dict[str, RunState] = {"ok": "done", "failed": "failed before", "interrupted": "interrupted"}
    return states[record.status]


def settle(bundle: Bundle) -> Record:
    """Derive and keep the record of a bundle whose driver died before it could."""
    record = derive(bundle)
    bundle.write_record(record)
    return record


def move_aside(root: Path, run_id: str) -> Path:
    """Keep a bundle that is to be done again under ``attic/``; nothing is ever overwritten."""
    attic = root / ATTIC
    attic.mkdir(exist_ok=True)
    number = 1
    while (attic / f"{run_id}.{number}").exists():
        number += 1
    target = attic / f"{run_id}.{number}"
    (root / run_id).rename(target)
    return target
