"""The events of one file: all at once where they are as the suite writes them, else line by line."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from suite.bundle.event_fields import (
    FIELDS,
    FREE,
    Environment,
    Event,
    Iteration,
    decoder_of,
    event_of,
    is_moment,
    wrong_field,
)
from suite.bundle.files import DamagedBundle, check_tree, parse_object
from suite.spec.foreign import LINE_BYTES

_DECODE = {writer: decoder_of(writer).decode for writer in FIELDS}
_parse, _encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
#: In a line with one of these, names are harder to count than ``_has_each_name_once`` does.
_CAREFUL = (b"\\", b"\t", b"\r", b" :")


def events_in(data: bytes, name: str, rank: int | None, notes: list[str]) -> tuple[Event, ...]:
    """Of the file that messages call ``name``, by a rank, or the driver. What is left out is noted: a last line that
    its writer did not finish, and kinds of a later version. Raises DamagedBundle."""
    return _usual_events(data, rank) or tuple(_one_by_one(data, name, rank, notes))


def _usual_events(data: bytes, rank: int | None) -> tuple[Event, ...]:
    """None where something is wrong with one of them, or to be noted."""
    lines = data.split(b"\n")
    if lines.pop() or not lines or max(map(len, lines)) >= LINE_BYTES:
        return ()
    try:
        events = tuple(map(_DECODE[_writer(rank)], lines))
        if not _has_each_name_once(data, lines):
            return ()
        if [event.seq for event in events] != list(range(len(events))) or {event.rank for event in events} != {rank}:
            return ()
        for event in events:
            if isinstance(event, Environment | Iteration):
                check_tree(event.facts if isinstance(event, Environment) else event.device, "")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, DamagedBundle):
        return ()
    return events


def _has_each_name_once(data: bytes, lines: Sequence[bytes]) -> bool:
    """Whether no object has a name twice, of which all but the last would be lost.

    Where there are no backslashes, and no spaces before colons, a name is followed by ``":`` at once, and nothing else
    is: there are as many of these in what was parsed, written again, as were read only if none was lost. Of lines with
    such characters JSON's own parser tells. Raises DamagedBundle or ``msgspec.MsgspecError``.
    """
    careful = [mark for mark in _CAREFUL if mark in data]
    for line in lines:
        if any(mark in line for mark in careful):
            parse_object(line.decode(), "")
        elif _encode(_parse(line)).count(b'":') != line.count(b'":'):
            return False
    return True


def _one_by_one(data: bytes, name: str, rank: int | None, notes: list[str]) -> Iterator[Event]:
    """Names what is wrong."""
    kinds, unknown = FIELDS[_writer(rank)], []
    lines = data.split(b"\n")
    rest = lines.pop()
    for seq, line in enumerate(lines):
        where = f"{name} line {seq + 1}"
        event = _object(line, where)
        _check_head(event, rank, seq, where)
        kind = kinds.get(event["kind"])
        if kind is None:
            unknown.append(f"{where}: kind {event['kind'][:40]!r} is not known and was left out")
            continue
        for field in FREE:
            if type(event.get(field)) is dict:
                check_tree(event[field], f"{where}: {field}")
        problem = wrong_field(event, kind)
        if problem:
            raise DamagedBundle(f"{where}: {event['kind']} event: {problem}")
        yield event_of(event, kind)
    if len(rest) > LINE_BYTES:
        raise _too_long(f"{name} line {len(lines) + 1}")
    if rest:
        notes.append(f"{name} line {len(lines) + 1} was cut short and left out")
    if unknown:
        notes.append(unknown[0] if len(unknown) == 1 else f"{unknown[0]}, as were {len(unknown) - 1} more")


def _object(line: bytes, where: str) -> dict[str, Any]:
    if len(line) >= LINE_BYTES:
        raise _too_long(where)
    try:
        return parse_object(line.decode(), where)
    except UnicodeDecodeError as error:
        raise DamagedBundle(f"{where} is not UTF-8 text") from error


def _too_long(where: str) -> DamagedBundle:
    return DamagedBundle(f"{where} is longer than {LINE_BYTES} bytes")


def _check_head(event: dict[str, Any], rank: int | None, seq: int, where: str) -> None:
    """Kind, rank, time and the place in the file, which every event carries."""
    time: Any = event.get("time")
    if type(event.get("kind")) is not str:
        raise DamagedBundle(f"{where} has no kind")
    if event.get("rank", -1) != rank or type(event["rank"]) is not type(rank):
        known = ascii(event.get("rank"))[:40]
        raise DamagedBundle(f"{where} says rank {known} in the file of {rank_name(rank)}")
    if type(event.get("seq")) is not int or event["seq"] != seq:
        raise DamagedBundle(f"{where} has seq {ascii(event.get('seq'))[:40]} where {seq} follows")
    if not is_moment(time):
        raise DamagedBundle(f"{where} has time {ascii(time)[:40]}, which is not Unix seconds")


def _writer(rank: int | None) -> str:
    return "driver" if rank is None else "rank"


def rank_name(rank: int | None) -> str:
    """How messages call a writer of events."""
    return "the driver" if rank is None else f"rank {rank}"
