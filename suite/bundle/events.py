"""The events of a run, read back: every line checked by hand, because thousands of lines through a model are slow."""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from suite.bundle.event_columns import USUAL, are_moments
from suite.bundle.event_fields import FIELDS, Kind, is_moment, wrong_field
from suite.bundle.files import DamagedBundle
from suite.bundle.json_lines import objects, plain_objects
from suite.spec.foreign import EVENTS_BYTES
from suite.spec.manifest import Manifest
from suite.spec.schema_files import not_read

EVENTS_SCHEMA = "suite/events/1"
#: Everything before iteration 0: memory only.
SETUP = "setup"

Event = dict[str, Any]
#: The content of a bundle's file by its name and the most bytes that are read; raises FileNotFoundError, DamagedBundle.
Read = Callable[[str, int], bytes]
#: A kind of a later version: only fields that any event may carry are known.
_UNKNOWN = Kind(())
_head = itemgetter("kind", "rank", "time", "seq")
_OF_ITERATIONS = frozenset(("turn", "phase", "memory", "iteration"))
#: Events of one file, and of all together: beyond any run, and no more than a machine reads in a minute.
MOST_IN_FILE, MOST_EVENTS = 1 << 18, 1 << 21
#: Bytes of all together, and more for each rank that has some: what is read takes up to twenty times as much memory.
MOST_BYTES, BYTES_OF_RANK = 256 << 20, 256 << 10
#: Ranks that wrote nothing: every one of them is looked at, though a manifest of 3 KB can ask for a million.
MOST_SILENT = 1 << 16
_RANK_FILE = re.compile(r"rank-(0|[1-9][0-9]{0,8})\.jsonl")


@dataclass(frozen=True)
class Events:
    """All events of a bundle in the order they were written, as parsed JSON whose fields were checked."""

    driver: tuple[Event, ...]
    ranks: dict[int, tuple[Event, ...]]
    notes: tuple[str, ...]

    def of(self, rank: int, kind: str) -> Sequence[Event]:
        """A rank's events of one kind, in order; none of a rank that wrote nothing."""
        return self._by_kind.get((rank, kind), ())

    def of_all(self, kind: str) -> Iterator[Event]:
        """The events of one kind of every rank, rank by rank."""
        return (event for rank in self.ranks for event in self.of(rank, kind))

    @cached_property
    def _by_kind(self) -> dict[tuple[int, str], list[Event]]:
        found: dict[tuple[int, str], list[Event]] = {}
        for rank, events in self.ranks.items():
            of_rank: dict[str, list[Event]] = defaultdict(list)
            for event in events:
                of_rank[event["kind"]].append(event)
            found.update(((rank, kind), same) for kind, same in of_rank.items())
        return found


def read_events(folder: Path, manifest: Manifest, read: Read) -> Events:
    """Read ``folder``, its files by ``read``. A line that its writer did not finish is left out and noted.

    Raises DamagedBundle on any other damage: no object, a wrong or missing field, a gap or a repetition, a rank
    outside of the manifest's world, another manifest's events, more of them than are read.
    """
    notes: list[str] = []
    ranks = {}
    size = count = 0
    present = _ranks_present(folder, manifest.layout.ranks)
    most = MOST_BYTES + BYTES_OF_RANK * len(present)
    for rank in present:
        name = f"events/rank-{rank}.jsonl"
        data = _content(name, read)
        size += len(data)
        if size > most:
            raise DamagedBundle(f"the events up to {name} have more than the {most} bytes that are read")
        events = _read_events(data, name, rank, notes)
        count += len(events)
        if count > MOST_EVENTS:
            raise DamagedBundle(f"up to {name} there are more than the {MOST_EVENTS} events that are read")
        _check_rank(events, rank, manifest)
        ranks[rank] = events
    log = "events/driver.jsonl"
    driver = _read_events(_content(log, read), log, None, notes)
    _check_driver(driver)
    return Events(driver=driver, ranks=ranks, notes=tuple(notes))


def _ranks_present(folder: Path, world: int) -> list[int]:
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise DamagedBundle("events is not a folder of the bundle's own")
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise DamagedBundle(f"events cannot be read: {(error.strerror or str(error)).lower()}") from error
    ranks = sorted(int(match.group(1)) for match in map(_RANK_FILE.fullmatch, names) if match)
    if ranks and ranks[-1] >= world:
        raise DamagedBundle(f"events/rank-{ranks[-1]}.jsonl is of a rank beyond the {world} of the manifest")
    if world - len(ranks) > MOST_SILENT:
        raise DamagedBundle(
            f"{world - len(ranks)} of the manifest's {world} ranks have no events, more than the {MOST_SILENT} that "
            "are looked for"
        )
    return ranks


def _content(name: str, read: Read) -> bytes:
    try:
        return read(name, EVENTS_BYTES)
    except FileNotFoundError:
        return b""


def _read_events(data: bytes, name: str, rank: int | None, notes: list[str]) -> tuple[Event, ...]:
    lines = data.count(b"\n")
    if lines > MOST_IN_FILE:
        raise DamagedBundle(f"{name} has {lines} events, more than the {MOST_IN_FILE} that are read")
    writer = "driver" if rank is None else "rank"
    kinds, usual = FIELDS[writer], _usual_events(data, rank, writer)
    if usual is not None:
        return usual
    events: list[Event] = []
    unknown: list[str] = []
    for seq, event in enumerate(objects(data, name, notes)):
        _check_head(event, rank, seq, name)
        kind = event["kind"]
        problem = wrong_field(event, kinds.get(kind, _UNKNOWN), name)
        if problem:
            raise DamagedBundle(f"{_line(name, seq)}: {kind} event: {problem}")
        if kind in kinds:
            events.append(event)
        else:
            unknown.append(f"{_line(name, seq)}: kind {kind[:40]!r} is not known and was left out")
    if unknown:
        notes.append(unknown[0] if len(unknown) == 1 else f"{unknown[0]}, as were {len(unknown) - 1} more")
    return tuple(events)


def _usual_events(data: bytes, rank: int | None, writer: str) -> tuple[Event, ...] | None:
    """All at once, where nothing is wrong with any and there is nothing to note; else null."""
    events = plain_objects(data)
    if not events:
        return None
    same: dict[str, list[Event]] = defaultdict(list)
    try:
        kind_names, ranks, times, seqs = zip(*map(_head, events), strict=True)
        if {*map(type, seqs)} != {int} or {*map(type, ranks)} != {type(rank)} or not are_moments(times):
            return None
        if seqs != tuple(range(len(events))) or ranks.count(rank) != len(events):
            return None
        for kind_name, event in zip(kind_names, events, strict=True):
            same[kind_name].append(event)
        if not all(_are_right(of_kind, name, writer) for name, of_kind in same.items()):
            return None
    except (KeyError, TypeError, DamagedBundle):  # a field that is not there, a kind that cannot be a key, bad facts
        return None
    return tuple(events)


def _are_right(events: Sequence[Event], kind_name: str, writer: str) -> bool:
    """Of one kind, which must be known. Raises as ``_usual_events`` expects it."""
    if USUAL[writer][kind_name].are_usual(events):
        return True
    kind = FIELDS[writer][kind_name]
    return all(kind.is_usual(event) or not wrong_field(event, kind, "") for event in events)


def _line(name: str, seq: int) -> str:
    return f"{name} line {seq + 1}"


def _check_head(event: Event, rank: int | None, seq: int, name: str) -> None:
    """Kind, rank, time and the place in the file, which every event carries."""
    kind: Any = event.get("kind")
    time: Any = event.get("time")
    if type(kind) is not str:
        raise DamagedBundle(f"{_line(name, seq)} has no kind")
    if event.get("rank", -1) != rank or type(event["rank"]) is bool:
        told = ascii(event.get("rank"))[:40]
        raise DamagedBundle(f"{_line(name, seq)} says rank {told} in the file of {rank_name(rank)}")
    if type(event.get("seq")) is not int or event["seq"] != seq:
        raise DamagedBundle(f"{_line(name, seq)} has seq {ascii(event.get('seq'))[:40]} where {seq} follows")
    if not is_moment(time):
        raise DamagedBundle(f"{_line(name, seq)} has time {ascii(time)[:40]}, which is not Unix seconds")


def rank_name(rank: int | None) -> str:
    """How messages call a writer of events."""
    return "the driver" if rank is None else f"rank {rank}"


def _check_rank(events: tuple[Event, ...], rank: int, manifest: Manifest) -> None:
    """One start first, iterations without gaps, phases once and in their iteration, nothing after the end."""
    name = f"events/rank-{rank}.jsonl"
    if events and events[0]["kind"] != "start":
        raise DamagedBundle(f"{name} does not begin with its start event")
    completed, has_ended = 0, False
    seen: set[tuple[object, ...]] = set()
    for event in events:
        kind = event["kind"]
        if has_ended:
            raise DamagedBundle(f"{_place(name, event)} follows the end")
        if kind in _OF_ITERATIONS:
            phase = event.get("phase")
            if phase == SETUP:
                key: tuple[object, ...] = (kind, phase)
            elif event["iteration"] != completed:
                raise DamagedBundle(
                    f"{_place(name, event)}: {kind} event of iteration {event['iteration']} where {completed} follows"
                )
            else:
                key = (kind, completed, phase)
            completed += kind == "iteration"
        elif kind == "failure":
            continue
        elif kind == "heartbeat":
            _check_heartbeat(event, completed, name)
            continue
        else:
            key = (kind,)
        if key in seen:
            raise DamagedBundle(f"{_place(name, event)}: {kind} event is a repetition")
        seen.add(key)
        has_ended = kind == "end"
        if kind == "start":
            _check_start(event, manifest, _place(name, event))
        elif has_ended and event["status"] == "ok":
            _check_iterations(completed, event["iterations"], manifest, _place(name, event))


def _place(name: str, event: Event) -> str:
    return f"{name} seq {event['seq']}"


def _check_heartbeat(event: Event, completed: int, name: str) -> None:
    """Any number of them, of the iteration at work or the one before: a trainer has work between iterations too."""
    iteration = event["iteration"]
    if iteration is not None and not completed - 1 <= iteration <= completed:
        raise DamagedBundle(
            f"{_place(name, event)}: heartbeat event of iteration {iteration} where {completed} follows"
        )


def _check_start(event: Event, manifest: Manifest, where: str) -> None:
    if event["schema"] != EVENTS_SCHEMA:
        raise DamagedBundle(not_read(where, event["schema"], EVENTS_SCHEMA, event["suite_version"]))
    for field, value in (("manifest_hash", manifest.hash), ("world_size", manifest.layout.ranks)):
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
