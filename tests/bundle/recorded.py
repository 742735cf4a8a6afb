"""Records of synthetic ranks, as they are derived, stored and verified."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from suite.bundle.derive import derive
from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from tests.synthetic import Event, Seconds, driver_events, facts_of, rank_events, write_bundle

TWO_RANKS = Layout(devices_per_node=2, data=2)
GPU = "NVIDIA A100-SXM4-80GB"
Ranks = dict[int, list[Event]]


def ranks_of(
    manifest: Manifest, seconds: float | Seconds = 1.0, *, rules: int = 1, device_name: str | None = None, **told: Any
) -> Ranks:
    """Events of every rank. ``rules``: those of the derivation that its worker asks for; 1 is that of the oldest."""
    facts = facts_of(manifest, device_name) | ({"derivation": rules} if rules > 1 else {})
    each = seconds if callable(seconds) else lambda iteration, rank: float(seconds)
    return {
        rank: rank_events(manifest, rank, each, **{"facts": facts, **told}) for rank in range(manifest.layout.ranks)
    }


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def numbered(events: list[Event]) -> list[Event]:
    """As its writer would have numbered what is left of its events, or what was put between them."""
    return [{**event, "seq": seq} for seq, event in enumerate(events)]


def put(body: Any, place: tuple[str | int, ...], value: Any) -> Any:
    """``body`` with another value deep inside of it."""
    inner = body
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return body


def calls_of(work: Callable[[], object]) -> int:
    """Functions that it calls."""
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


def record_of(path: Path) -> Record:
    return derive(Bundle(path))


def recorded(
    root: Path, manifest: Manifest, ranks: Ranks, status: str | None = "ok", verifies: str | None = None
) -> Record:
    """The record of a run whose driver ended with ``status``; the bundle gives it again, and ``verifies`` so."""
    bundle = Bundle(write_bundle(root, manifest, ranks, driver_events(manifest, status)))
    record = derive(bundle)
    bundle.write_record(record)
    found = verify(bundle)
    assert found.differences == () and verifies in (None, found.status), found
    return record
