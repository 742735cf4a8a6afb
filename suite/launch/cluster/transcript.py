"""From the output of a run to each rank's events and each stream's log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from suite.launch.cluster.scheduler import Stream
from suite.launch.stream import EVENT_PREFIX, parse_event

PIECE = "piece"
#: kinds of events that are not a rank's, but of whoever started the ranks
OWN_KINDS = frozenset(("batch", "batch_end", "outcome"))


@dataclass
class Transcript:
    """What the streams of a run hold, put in order."""

    #: rank -> its events from seq 0 on without a gap, each a line as the rank wrote it
    events: dict[int, list[bytes]] = field(default_factory=dict)
    #: stream -> every line that is no event
    logs: dict[str, list[bytes]] = field(default_factory=dict)
    #: events of whoever started the ranks, in order of arrival
    own: list[dict[str, Any]] = field(default_factory=list)
    #: what is missing or was left out, one line each
    notes: list[str] = field(default_factory=list)


def read_streams(streams: Iterable[Stream], ranks: int) -> Transcript:
    """Sort the lines of all streams.

    Events are identified by rank and seq: one that comes twice counts once, what follows a gap or an event that came
    twice and not alike (two processes are that rank) is left out and noted, and half a line is log.
    """
    sorting = _Sorting(ranks)
    for stream in streams:
        log = sorting.transcript.logs.setdefault(stream.name, [])
        for line in stream.lines:
            start = line.find(EVENT_PREFIX)
            event = parse_event(line[start:]) if start >= 0 else None
            if event is None:
                log.append(line)
                continue
            if start:
                log.append(line[:start] + b"\n")
            sorting.take(event, line[start + len(EVENT_PREFIX) :])
    return sorting.end()


class _Sorting:
    """Events as they come, by rank and seq."""

    def __init__(self, ranks: int) -> None:
        self.transcript = Transcript()
        self._ranks = ranks
        self._seen: dict[int, dict[int, bytes]] = {rank: {} for rank in range(ranks)}
        self._unlike: dict[int, int] = {}
        self._pieces: dict[tuple[int, int], dict[int, dict[str, Any]]] = {}

    def take(self, event: dict[str, Any], line: bytes) -> None:
        if event["kind"] in OWN_KINDS:
            self.transcript.own.append(event)
            return
        rank, seq = event.get("rank"), event.get("seq")
        if type(rank) is not int or type(seq) is not int or rank not in self._seen or seq < 0:
            kind = str(event["kind"])[:40]
            self.transcript.notes.append(f"an event of kind {kind!r} names no rank of this run and was left out")
        elif event["kind"] == PIECE:
            if type(event.get("part")) is int:
                self._pieces.setdefault((rank, seq), {}).setdefault(event["part"], event)
        else:
            self._put(rank, seq, line.rstrip() + b"\n")

    def end(self) -> Transcript:
        for (rank, seq), pieces in self._pieces.items():
            whole = _joined(pieces)
            if whole is not None:
                self._put(rank, seq, whole)
        for rank, by_seq in self._seen.items():
            if by_seq:
                self.transcript.events[rank] = self._without_gaps(rank, by_seq)
        return self.transcript

    def _put(self, rank: int, seq: int, line: bytes) -> None:
        known = self._seen[rank].setdefault(seq, line)
        if known != line and json.loads(known) != json.loads(line):
            self._unlike[rank] = min(seq, self._unlike.get(rank, seq))

    def _without_gaps(self, rank: int, by_seq: dict[int, bytes]) -> list[bytes]:
        whole: list[bytes] = []
        unlike = self._unlike.get(rank)
        while len(whole) in by_seq and len(whole) != unlike:
            whole.append(by_seq[len(whole)])
        lost = len(by_seq) - len(whole)
        if lost:
            self.transcript.notes.append(
                f"rank {rank}: event {len(whole)} came twice and not alike; it and what follows was left out"
                if len(whole) == unlike
                else f"rank {rank}: event {len(whole)} is missing from the output; {lost} that follow it were left out"
            )
        return whole


def _joined(pieces: dict[int, dict[str, Any]]) -> bytes | None:
    """A long event whose pieces are all there; ``None`` where one is missing or they make no event."""
    count = next(iter(pieces.values())).get("parts")
    if count != len(pieces) or sorted(pieces) != list(range(len(pieces))):
        return None
    text = "".join(str(pieces[index].get("text")) for index in range(len(pieces))).strip()
    try:
        return text.encode() + b"\n" if isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):  # no JSON, or no Unicode
        return None
