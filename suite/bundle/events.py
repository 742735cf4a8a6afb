"""The events of a run, read back and checked: each by itself, and in the order in which they were written."""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

import msgspec

from suite.bundle import event_fields as kinds
from suite.bundle.event_fields import FIELDS, Event, kind_of, words_of
from suite.bundle.files import DamagedBundle, check_tree, parse_object, text_of
from suite.spec.foreign import EVENTS_BYTES, LINE_BYTES
from suite.spec.manifest import Manifest
from suite.spec.schema_files import not_read

if TYPE_CHECKING:
    from suite.bundle.timeline import RankTimes

EVENTS_SCHEMA = "suite/events/1"
#: Everything before iteration 0: memory only.
SETUP = "setup"

#: The content of a bundle's file by its name and the most bytes that are read; raises FileNotFoundError, DamagedBundle.
Read = Callable[[str, int], bytes]
_Kind = TypeVar("_Kind", bound=Event)
_OF_ITERATIONS: frozenset[type[Event]] = frozenset((kinds.Turn, kinds.Phase, kinds.Memory, kinds.Iteration))
#: Events of one file, and of all together: beyond any run, and no more than a machine reads in a minute.
MOST_IN_FILE, MOST_EVENTS = 1 << 18, 1 << 21
#: Bytes of all together, and more for each rank that has some: what is read takes up to twenty times as much memory.
MOST_BYTES, BYTES_OF_RANK = 256 << 20, 256 << 10
#: Ranks that wrote nothing: every one of them is looked at, though a manifest of 3 KB can ask for a million.
MOST_SILENT = 1 << 16
_RANK_FILE = re.compile(r"rank-(0|[1-9][0-9]{0,8})\.jsonl")
#: Each raises ``msgspec.MsgspecError``, UnicodeDecodeError or RecursionError.
_DECODE = {
    writer: msgspec.json.Decoder(Union[tuple(of_writer.values())]).decode  # noqa: UP007
    for writer, of_writer in FIELDS.items()
}
_encode = msgspec.json.Encoder().encode
#: In a line without these a name is followed by ``":`` at once, and hardly anything else is: where a line has as many
#: of it as the event that was read, written again, no name was there twice and lost, or is of a later version.
_CAREFUL = (b"\\", b"\t", b"\r", b" :")


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
    def facts(self) -> dict[int, dict[str, Any]]:
        """Those of the environment event of each rank that wrote one."""
        return {rank: event.facts for rank in self.ranks for event in self.of(rank, kinds.Environment)}

    @cached_property
    def times(self) -> "RankTimes":
        from suite.bundle.timeline import times_of  # loads numpy, which who only looks for bundles does without

        return times_of(self)

    @cached_property
    def _by_kind(self) -> dict[tuple[int, type[Event]], list[Event]]:
        found: dict[tuple[int, type[Event]], list[Event]] = defaultdict(list)
        for rank, events in self.ranks.items():
            for event in events:
                found[rank, type(event)].append(event)
        return found


def read_events(folder: Path, manifest: Manifest, read: Read) -> Events:
    """Read ``folder``, its files by ``read``. A line that its writer did not finish is left out and noted.

    Raises DamagedBundle on any other damage: no object, a wrong or missing field, a gap or a repetition, a rank
    outside of the manifest's world, another manifest's events, more of them than are read.
    """
    notes: list[str] = []
    ranks: dict[int, tuple[Event, ...]] = {}
    size = count = 0
    present = _ranks_present(folder, manifest.layout.ranks)
    most = MOST_BYTES + BYTES_OF_RANK * len(present)
    for rank in present:
        name = f"events/rank-{rank}.jsonl"
        data = _content(name, read)
        size, count = size + len(data), count + data.count(b"\n")
        if size > most or count > MOST_EVENTS:
            what = f"{count} events of {size} bytes, and at most {MOST_EVENTS} of {most} bytes are read"
            raise DamagedBundle(f"up to {name} there are {what}")
        ranks[rank] = events_in(data, name, rank, notes)
        _check_rank(ranks[rank], name, manifest)
    log = "events/driver.jsonl"
    driver = events_in(_content(log, read), log, None, notes)
    for kind, place in ((kinds.Launch, 0), (kinds.DriverEnd, -1)):
        found = [event for event in driver if isinstance(event, kind)]
        if found and found != [driver[place]]:
            raise DamagedBundle(f"{log} has a {kind_of(found[0])} event out of place or more than once")
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
    silent = world - len(ranks)
    if silent > MOST_SILENT:
        known = f"{silent} of the manifest's {world} ranks have no events"
        raise DamagedBundle(f"{known}, more than the {MOST_SILENT} that are looked for")
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


def _check_rank(events: tuple[Event, ...], name: str, manifest: Manifest) -> None:
    """One start first, iterations without gaps, phases once and in their iteration, nothing after the end."""
    if not events:
        return
    if not isinstance(events[0], kinds.Start):
        raise DamagedBundle(f"{name} does not begin with its start event")
    _check_start(events[0], manifest, f"{name} seq {events[0].seq}")
    completed, has_ended = 0, False
    seen: set[object] = set()
    for event in events:
        kind, phase, iteration = type(event), getattr(event, "phase", None), getattr(event, "iteration", None)
        if has_ended:
            raise DamagedBundle(f"{name} seq {event.seq} follows the end")
        if kind is kinds.Failed:
            continue
        is_within, is_beat = kind in _OF_ITERATIONS and phase != SETUP, kind is kinds.Heartbeat
        # a trainer has work between iterations too, of which it tells as of the one before
        if (is_within and iteration != completed) or (is_beat and iteration not in (completed, completed - 1, None)):
            what = f"{kind_of(event)} event of iteration {iteration} where {completed} follows"
            raise DamagedBundle(f"{name} seq {event.seq}: {what}")
        if is_beat:
            continue
        once = kind, phase, completed if is_within else None
        if once in seen:
            raise DamagedBundle(f"{name} seq {event.seq}: {kind_of(event)} event is a repetition")
        seen.add(once)
        if kind is kinds.Iteration:
            completed += 1
        elif isinstance(event, kinds.RankEnd):
            has_ended, asked = True, manifest.measure.warmup + manifest.iterations
            if event.status == "ok" and not completed == event.iterations == asked:
                counts = f"{event.iterations} iterations; {completed} were written, {asked} were asked for"
                raise DamagedBundle(f"{name} seq {event.seq}: ended ok after {counts}")


def _check_start(event: kinds.Start, manifest: Manifest, where: str) -> None:
    if event.schema != EVENTS_SCHEMA:
        raise DamagedBundle(not_read(where, event.schema, EVENTS_SCHEMA, event.suite_version))
    for field, value in (("manifest_hash", manifest.hash), ("world_size", manifest.layout.ranks)):
        known = getattr(event, field)
        if known != value:
            raise DamagedBundle(f"{where}: {field} is {ascii(known)[:80]}, not {value}: events of another run")


def events_in(data: bytes, name: str, rank: int | None, notes: list[str]) -> tuple[Event, ...]:
    """Of the file that messages call ``name``, by a rank, or the driver. What is left out is noted: a last line that
    its writer did not finish, and kinds of a later version. Raises DamagedBundle."""
    events: list[Event] = []
    unknown: list[str] = []
    lines = data.split(b"\n")
    longest = max(lines, key=len)
    if len(longest) >= LINE_BYTES:
        raise DamagedBundle(f"{name} line {lines.index(longest) + 1} is longer than {LINE_BYTES} bytes")
    if lines.pop():
        notes.append(f"{name} line {len(lines) + 1} was cut short and left out")
    writer = "driver" if rank is None else "rank"
    decode, careful = _DECODE[writer], [mark for mark in _CAREFUL if mark in data]
    for seq, line in enumerate(lines):
        where = f"{name} line {seq + 1}"
        try:
            event = decode(line)
            is_careful = careful and any(mark in line for mark in careful)
            if is_careful or _encode(event).count(b'":') != line.count(b'":'):
                parse_object(text_of(line, where), where)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            unknown.append(_of_later_kind(line, FIELDS[writer], where, error))
            continue
        if event.rank != rank:
            raise DamagedBundle(f"{where} says rank {event.rank} in the file of {rank_name(rank)}")
        if event.seq != seq:
            raise DamagedBundle(f"{where} has seq {event.seq} where {seq} follows")
        if isinstance(event, kinds.Iteration):
            check_tree(event.device, f"{where}: device")
        elif isinstance(event, kinds.Environment):
            check_tree(event.facts, f"{where}: facts")
        events.append(event)
    if unknown:
        notes.append(unknown[0] if len(unknown) == 1 else f"{unknown[0]}, as were {len(unknown) - 1} more")
    return tuple(events)


def _of_later_kind(line: bytes, known: Collection[str], where: str, error: Exception) -> str:
    """A note on an event of a kind that is not known. Raises DamagedBundle for what is none: what is wrong, as
    ``error`` has it."""
    told = parse_object(text_of(line, where), where)
    kind = told.get("kind")
    if type(kind) is not str:
        raise DamagedBundle(f"{where} has no kind")
    if kind not in known:
        return f"{where}: kind {kind[:40]!r} is not known and was left out"
    for field in ("facts", "device"):
        check_tree(told.get(field), f"{where}: {field}")
    raise DamagedBundle(f"{where}: {kind} event: {words_of(error, told)}") from error


def rank_name(rank: int | None) -> str:
    """How messages call a writer of events."""
    return "the driver" if rank is None else f"rank {rank}"
