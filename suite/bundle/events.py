"""The events of a run, read back and checked: each by itself, and in the order in which they were written."""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from suite.bundle.event_fields import (
    DriverEnd,
    Event,
    Failed,
    Heartbeat,
    Iteration,
    Launch,
    Memory,
    Phase,
    RankEnd,
    Start,
    Turn,
    kind_of,
)
from suite.bundle.event_lines import events_in
from suite.bundle.files import DamagedBundle
from suite.spec.foreign import EVENTS_BYTES
from suite.spec.manifest import Manifest
from suite.spec.schema_files import not_read

if TYPE_CHECKING:
    from suite.bundle.rank_times import RankTimes

EVENTS_SCHEMA = "suite/events/1"
#: Everything before iteration 0: memory only.
SETUP = "setup"

#: The content of a bundle's file by its name and the most bytes that are read; raises FileNotFoundError, DamagedBundle.
Read = Callable[[str, int], bytes]
_Kind = TypeVar("_Kind", bound=Event)
_OF_ITERATIONS: frozenset[type[Event]] = frozenset((Turn, Phase, Memory, Iteration))
#: Events of one file, and of all together: beyond any run, and no more than a machine reads in a minute.
MOST_IN_FILE, MOST_EVENTS = 1 << 18, 1 << 21
#: Bytes of all together, and more for each rank that has some: what is read takes up to twenty times as much memory.
MOST_BYTES, BYTES_OF_RANK = 256 << 20, 256 << 10
#: Ranks that wrote nothing: every one of them is looked at, though a manifest of 3 KB can ask for a million.
MOST_SILENT = 1 << 16
_RANK_FILE = re.compile(r"rank-(0|[1-9][0-9]{0,8})\.jsonl")


@dataclass(frozen=True)
class Events:
    """All events of a bundle in the order they were written."""

    driver: tuple[Event, ...]
    ranks: dict[int, tuple[Event, ...]]
    notes: tuple[str, ...]

    def of(self, rank: int, kind: type[_Kind]) -> Sequence[_Kind]:
        return cast(Sequence[_Kind], self._by_kind.get((rank, kind), ()))

    def of_all(self, kind: type[_Kind]) -> Iterator[_Kind]:
        return (event for rank in self.ranks for event in self.of(rank, kind))

    def of_driver(self, kind: type[_Kind]) -> _Kind | None:
        return next((event for event in self.driver if isinstance(event, kind)), None)

    @cached_property
    def times(self) -> "RankTimes":
        from suite.bundle.rank_times import times_of  # loads numpy, which who only looks for bundles does without

        return times_of(self.ranks)

    @cached_property
    def _by_kind(self) -> dict[tuple[int, type[Event]], list[Event]]:
        found: dict[tuple[int, type[Event]], list[Event]] = {}
        for rank, events in self.ranks.items():
            of_rank: dict[type[Event], list[Event]] = defaultdict(list)
            for event in events:
                of_rank[type(event)].append(event)
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
        events = events_in(data, name, rank, notes)
        count += len(events)
        if count > MOST_EVENTS:
            raise DamagedBundle(f"up to {name} there are more than the {MOST_EVENTS} events that are read")
        _check_rank(events, rank, manifest)
        ranks[rank] = events
    log = "events/driver.jsonl"
    driver = events_in(_content(log, read), log, None, notes)
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
        data = read(name, EVENTS_BYTES)
    except FileNotFoundError:
        return b""
    lines = data.count(b"\n")
    if lines > MOST_IN_FILE:
        raise DamagedBundle(f"{name} has {lines} events, more than the {MOST_IN_FILE} that are read")
    return data


def _check_rank(events: tuple[Event, ...], rank: int, manifest: Manifest) -> None:
    """One start first, iterations without gaps, phases once and in their iteration, nothing after the end."""
    name = f"events/rank-{rank}.jsonl"
    if events and type(events[0]) is not Start:
        raise DamagedBundle(f"{name} does not begin with its start event")
    completed, has_ended = 0, False
    seen: set[object] = set()
    within: set[tuple[type[Event], str | None]] = set()
    for event in events:
        kind = type(event)
        if has_ended:
            raise DamagedBundle(f"{_place(name, event)} follows the end")
        if kind in _OF_ITERATIONS:
            phase: str | None = None if kind is Turn or kind is Iteration else event.phase  # type: ignore[attr-defined]
            if phase != SETUP:
                if event.iteration != completed:  # type: ignore[attr-defined]
                    raise DamagedBundle(_follows(name, event, event.iteration, completed))  # type: ignore[attr-defined]
                if (kind, phase) in within:
                    raise DamagedBundle(f"{_place(name, event)}: {kind_of(event)} event is a repetition")
                within.add((kind, phase))
                if kind is Iteration:
                    completed += 1
                    within.clear()
                continue
        elif isinstance(event, Failed):
            continue
        elif isinstance(event, Heartbeat):
            # of the iteration at work or the one before: a trainer has work between iterations too
            if event.iteration is not None and not completed - 1 <= event.iteration <= completed:
                raise DamagedBundle(_follows(name, event, event.iteration, completed))
            continue
        if kind in seen:
            raise DamagedBundle(f"{_place(name, event)}: {kind_of(event)} event is a repetition")
        seen.add(kind)
        if isinstance(event, Start):
            _check_start(event, manifest, _place(name, event))
        elif isinstance(event, RankEnd):
            has_ended = True
            if event.status == "ok":
                _check_iterations(completed, event.iterations, manifest, _place(name, event))


def _place(name: str, event: Event) -> str:
    return f"{name} seq {event.seq}"


def _follows(name: str, event: Event, iteration: int | None, completed: int) -> str:
    return f"{_place(name, event)}: {kind_of(event)} event of iteration {iteration} where {completed} follows"


def _check_start(event: Start, manifest: Manifest, where: str) -> None:
    if event.schema != EVENTS_SCHEMA:
        raise DamagedBundle(not_read(where, event.schema, EVENTS_SCHEMA, event.suite_version))
    for field, value in (("manifest_hash", manifest.hash), ("world_size", manifest.layout.ranks)):
        known = getattr(event, field)
        if known != value:
            raise DamagedBundle(f"{where}: {field} is {ascii(known)[:80]}, not {value}: events of another run")


def _check_iterations(completed: int, claimed: int, manifest: Manifest, where: str) -> None:
    asked = manifest.measure.warmup + manifest.iterations
    if not completed == claimed == asked:
        raise DamagedBundle(
            f"{where}: ended ok after {claimed} iterations; {completed} were written, {asked} were asked for"
        )


def _check_driver(events: tuple[Event, ...]) -> None:
    kinds = [type(event) for event in events]
    for kind, place in ((Launch, 0), (DriverEnd, len(kinds) - 1)):
        if kind in kinds and (kinds.count(kind) > 1 or kinds[place] is not kind):
            name = kind_of(events[kinds.index(kind)])
            raise DamagedBundle(f"events/driver.jsonl has a {name} event out of place or more than once")
