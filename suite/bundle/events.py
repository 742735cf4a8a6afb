"""The events of a run, read back: every line checked by hand, because thousands of lines through a model are slow."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from suite.bundle.event_fields import FIELDS, is_moment, wrong_field
from suite.bundle.files import EVENTS_BYTES, LINE_BYTES, DamagedBundle, open_plain, parse_object
from suite.spec.manifest import Manifest

EVENTS_SCHEMA = "suite/events/1"
#: Everything before iteration 0: memory only.
SETUP = "setup"

Event = dict[str, Any]
_RANK_FILE = re.compile(r"rank-(0|[1-9][0-9]{0,8})\.jsonl")


@dataclass(frozen=True)
class Events:
    """All events of a bundle in the order they were written, as parsed JSON whose fields were checked."""

    driver: tuple[Event, ...]
    ranks: dict[int, tuple[Event, ...]]
    notes: tuple[str, ...]


def read_events(folder: Path, manifest: Manifest) -> Events:
    """Read ``folder``. A line that its writer did not finish is left out and noted.

    Raises DamagedBundle on any other damage: no object, a wrong or missing field, a gap or a repetition, a rank
    outside of the manifest's world, another manifest's events.
    """
    notes: list[str] = []
    ranks = {}
    for rank in _ranks_present(folder, manifest.layout.ranks):
        events = _read_file(folder / f"rank-{rank}.jsonl", rank, notes)
        _check_rank(events, rank, manifest)
        ranks[rank] = events
    driver = _read_file(folder / "driver.jsonl", None, notes)
    _check_driver(driver)
    return Events(driver=driver, ranks=ranks, notes=tuple(notes))


def _ranks_present(folder: Path, world: int) -> list[int]:
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise DamagedBundle("events is not a folder of the bundle's own")
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DamagedBundle(f"events cannot be read: {(error.strerror or str(error)).lower()}") from error
    ranks = sorted(int(match.group(1)) for match in map(_RANK_FILE.fullmatch, names) if match)
    if ranks and ranks[-1] >= world:
        raise DamagedBundle(f"events/rank-{ranks[-1]}.jsonl is of a rank beyond the {world} of the manifest")
    return ranks


def _read_file(path: Path, rank: int | None, notes: list[str]) -> tuple[Event, ...]:
    name = f"events/{path.name}"
    try:
        file = open_plain(path, name, EVENTS_BYTES)
    except FileNotFoundError:
        return ()
    kinds = FIELDS["driver" if rank is None else "rank"]
    events: list[Event] = []
    unknown: list[str] = []
    with file:
        for number, line in _lines(file, name, notes):
            where = f"{name} line {number}"
            try:
                event = parse_object(line.decode(), where)
            except UnicodeDecodeError as error:
                raise DamagedBundle(f"{where} is not UTF-8 text") from error
            _check_head(event, rank, len(events), where)
            problem = wrong_field(event, kinds.get(event["kind"], ()), where)
            if problem:
                raise DamagedBundle(f"{where}: {event['kind']} event: {problem}")
            if event["kind"] not in kinds:
                unknown.append(f"{where}: kind {event['kind'][:40]!r} is not known and was left out")
            events.append(event)
    if unknown:
        notes.append(unknown[0] if len(unknown) == 1 else f"{unknown[0]}, as were {len(unknown) - 1} more")
    return tuple(event for event in events if event["kind"] in kinds)


def _lines(file: BinaryIO, name: str, notes: list[str]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while True:
        line = file.readline(LINE_BYTES + 1)
        if not line:
            return
        number += 1
        if len(line) > LINE_BYTES:
            raise DamagedBundle(f"{name} line {number} is longer than {LINE_BYTES} bytes")
        if not line.endswith(b"\n"):
            notes.append(f"{name} line {number} was cut short and left out")
            return
        yield number, line


def _check_head(event: Event, rank: int | None, seq: int, where: str) -> None:
    """Kind, rank, time and the place in the file, which every event carries."""
    kind: Any = event.get("kind")
    time: Any = event.get("time")
    if type(kind) is not str:
        raise DamagedBundle(f"{where} has no kind")
    if event.get("rank", -1) != rank or type(event["rank"]) is bool:
        raise DamagedBundle(f"{where} says rank {ascii(event.get('rank'))[:40]} in the file of {rank_name(rank)}")
    if type(event.get("seq")) is not int or event["seq"] != seq:
        raise DamagedBundle(f"{where} has seq {ascii(event.get('seq'))[:40]} where {seq} follows")
    if not is_moment(time):
        raise DamagedBundle(f"{where} has time {ascii(time)[:40]}, which is not Unix seconds")


def rank_name(rank: int | None) -> str:
    """How messages call a writer of events."""
    return "the driver" if rank is None else f"rank {rank}"


def _check_rank(events: tuple[Event, ...], rank: int, manifest: Manifest) -> None:
    """One start first, iterations without gaps, phases once and in their iteration, nothing after the end."""
    name = f"events/rank-{rank}.jsonl"
    if events and events[0]["kind"] != "start":
        raise DamagedBundle(f"{name} does not begin with its start event")
    completed = 0
    seen: set[tuple[object, ...]] = set()
    for event in events:
        where, kind = f"{name} seq {event['seq']}", event["kind"]
        if ("end",) in seen:
            raise DamagedBundle(f"{where} follows the end")
        if kind in ("phase", "memory", "iteration"):
            phase = event.get("phase")
            if phase == SETUP:
                key: tuple[object, ...] = (kind, phase)
            elif event["iteration"] != completed:
                raise DamagedBundle(
                    f"{where}: {kind} event of iteration {event['iteration']} where {completed} follows"
                )
            else:
                key = (kind, completed, phase)
            completed += kind == "iteration"
        elif kind == "failure":
            continue
        elif kind == "heartbeat":
            _check_heartbeat(event, completed, where)
            continue
        else:
            key = (kind,)
        if key in seen:
            raise DamagedBundle(f"{where}: {kind} event is a repetition")
        seen.add(key)
        if kind == "start":
            _check_start(event, manifest, where)
        elif kind == "end" and event["status"] == "ok":
            _check_iterations(completed, event["iterations"], manifest, where)


def _check_heartbeat(event: Event, completed: int, where: str) -> None:
    """Any number of them, of the iteration at work or the one before: a trainer has work between iterations too."""
    iteration = event["iteration"]
    if iteration is not None and not completed - 1 <= iteration <= completed:
        raise DamagedBundle(f"{where}: heartbeat event of iteration {iteration} where {completed} follows")


def _check_start(event: Event, manifest: Manifest, where: str) -> None:
    for field, value in (
        ("schema", EVENTS_SCHEMA),
        ("manifest_hash", manifest.hash),
        ("world_size", manifest.layout.ranks),
    ):
        if event[field] != value:
            raise DamagedBundle(f"{where}: {field} is {ascii(event[field])[:80]}, not {value}: events of another run")


def _check_iterations(completed: int, claimed: int, manifest: Manifest, where: str) -> None:
    asked = manifest.measure.warmup + manifest.iterations
    if not completed == claimed == asked:
        raise DamagedBundle(
            f"{where}: ended ok after {claimed} iterations; {completed} were written, {asked} were asked for"
        )


def _check_driver(events: tuple[Event, ...]) -> None:
    """At most one launch, first; at most one end, last."""
    kinds = [event["kind"] for event in events]
    for kind, place in (("launch", 0), ("end", len(kinds) - 1)):
        if kind in kinds and (kinds.count(kind) > 1 or kinds[place] != kind):
            raise DamagedBundle(f"events/driver.jsonl has a {kind} event out of place or more than once")
