"""From the output of a run on a cluster to each rank's events and each stream's log, and to how it ended. Pure."""

import json
import math
import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from suite.launch.classify import PATTERNS, RankEnd, Report, RunEnd, classify
from suite.launch.cluster.launcher import Gathered, SchedulerEnd, Stream
from suite.launch.outcome import Failure, Outcome
from suite.launch.stream import EVENT_PREFIX, parse_event
from suite.launch.traces import TAIL_BYTES, finite, iteration_of, parse_reports, phase_of, printable_lines


@dataclass
class Transcript:
    """What the streams of a run hold, put in order."""

    events: dict[int, list[bytes]] = field(default_factory=dict)  # rank -> its events as it wrote them, without a gap
    logs: dict[str, list[bytes]] = field(default_factory=dict)  # stream -> every line that is no event
    own: list[dict[str, Any]] = field(default_factory=list)  # events of whoever started the ranks, as they came
    notes: list[str] = field(default_factory=list)  # what is missing or was left out, one line each


def read_streams(streams: Iterable[Stream], ranks: int) -> Transcript:
    """Sort the lines of all streams. Events are identified by rank and seq: one that comes twice counts once, what
    follows a gap or an event that came twice and not alike (two processes are that rank) is left out and noted, and
    half a line is log."""
    found, seen = Transcript(), {rank: _Events() for rank in range(ranks)}
    for stream in streams:
        log = found.logs.setdefault(stream.name, [])
        for line in stream.lines:
            start = line.find(EVENT_PREFIX)
            event = parse_event(line[start:])
            if event is None:
                log.append(line)
                continue
            if start:
                log.append(line[:start] + b"\n")
            kind, rank, seq = event["kind"], event.get("rank"), event.get("seq")
            if kind in ("batch", "batch_end"):
                found.own.append(event)
            elif type(rank) is not int or type(seq) is not int or rank not in seen or seq < 0:
                found.notes.append(f"an event of kind {kind[:40]!r} names no rank of this run and was left out")
            elif kind == "piece":
                if type(event.get("part")) is int:
                    seen[rank].pieces.setdefault(seq, {}).setdefault(event["part"], event)
            else:
                seen[rank].put(seq, line[start + len(EVENT_PREFIX) :].rstrip() + b"\n")
    for rank, events in seen.items():
        for seq, pieces in events.pieces.items():
            if (joined := _joined(pieces)) is not None:
                events.put(seq, joined)
        if events.lines:
            found.events[rank] = events.without_gaps(rank, found.notes)
    return found


class _Events:
    """Those of a rank, by seq; ``pieces``: of long ones, by seq and part."""

    def __init__(self) -> None:
        self.lines: dict[int, bytes] = {}
        self.pieces: dict[int, dict[int, dict[str, Any]]] = {}
        self._unlike = math.inf

    def put(self, seq: int, line: bytes) -> None:
        known = self.lines.setdefault(seq, line)
        if known != line and json.loads(known) != json.loads(line):
            self._unlike = min(seq, self._unlike)

    def without_gaps(self, rank: int, notes: list[str]) -> list[bytes]:
        whole: list[bytes] = []
        while len(whole) in self.lines and len(whole) != self._unlike:
            whole.append(self.lines[len(whole)])
        lost = len(self.lines) - len(whole)
        if lost:
            notes.append(
                f"rank {rank}: event {len(whole)} came twice and not alike; it and what follows was left out"
                if len(whole) == self._unlike
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


_FAILED_RANK = re.compile(rb"\s*rank\s*: (\d{1,9}) \(local_rank: \d+\)")
_SIGNALLED = re.compile(rb"torch\.[\w.]*SignalException: Process \d{1,9} got signal: (\d{1,2})\s*$")
_EXIT_CODE = re.compile(rb"\s*exitcode\s*: (-?\d{1,9})\b")


class FailedRank(NamedTuple):
    """A row of the table that torchrun prints last, of a rank that ended badly."""

    exit_code: int  # negative: signal
    is_first: bool  # the one that torchrun saw first; others it may have ended itself


def failed_ranks(lines: Iterable[bytes]) -> dict[int, FailedRank]:
    """By rank, the rows of torchrun's table of failures."""
    failed: dict[int, FailedRank] = {}
    rank: int | None = None
    is_first = False
    for line in lines:
        named, code = _FAILED_RANK.match(line), _EXIT_CODE.match(line)
        if line.startswith(b"Root Cause"):
            is_first = True
        elif named:
            rank = int(named[1])
        elif code and rank is not None:
            failed.setdefault(rank, FailedRank(int(code[1]), is_first))
            rank = None
    return failed


def signal_of_torchrun(lines: Iterable[bytes]) -> int | None:
    """The signal that torchrun says it was sent: it ends its ranks by it then, and its own exit code is 1."""
    return next((int(said[1]) for line in lines if (said := _SIGNALLED.match(line))), None)


class _Rank(NamedTuple):
    """What is known of one rank from its own events."""

    started: bool
    reports: tuple[Report, ...]
    status: str | None  # of its end event
    last_time: float


def run_outcome(ranks: int, gathered: Gathered, transcript: Transcript) -> Outcome:
    """The run's end: ok only where every rank reports ok and nothing contradicts it."""
    streams, end, patterns = gathered
    end = _with_signals(end, transcript)
    ranks_seen = {rank: _rank(transcript.events.get(rank, [])) for rank in range(ranks)}
    failed = ((stream, failed_ranks(transcript.logs.get(stream.name, []))) for stream in streams)
    rows = {rank: row for stream, found in failed for rank, row in found.items() if rank in stream.ranks}
    rank_ends = tuple(_rank_ends(ranks_seen, rows, streams, end))
    codes = {each.rank: each.exit_code for each in rank_ends}
    last_seen = _last_seen(transcript.events.get(0, []))
    elapsed = end.ended - end.started if end.started and end.ended and end.ended > end.started else 0.0
    if end.status == "interrupted":
        failure = (end.verdict or Failure(kind="interrupted")).model_copy(update=last_seen)
        return Outcome(status="interrupted", exit_codes=codes, elapsed_seconds=elapsed, failure=failure)
    if end.status != "failed" and all(rank.status == "ok" for rank in ranks_seen.values()):
        return Outcome(status="ok", exit_codes=codes, elapsed_seconds=elapsed)
    ends = (*rank_ends, *_stream_ends(ranks_seen, streams, end, transcript))
    verdict = end.verdict or (_cut_off(ranks_seen) if end.status == "ok" else None)
    verdict = verdict and verdict.model_copy(update=last_seen)
    whole = RunEnd(ranks=ends, verdict=verdict, proven=end.proven, **last_seen)
    failure = classify(whole, (*PATTERNS, *patterns))
    failure = failure.model_copy(update={"evidence": (*failure.evidence, *transcript.notes)})
    return Outcome(status="failed", exit_codes=codes, elapsed_seconds=elapsed, failure=failure)


def _cut_off(ranks_seen: dict[int, _Rank]) -> Failure | None:
    """A runtime that is killed loses what its containers print until it is back, also that they are done."""
    silent = ", ".join(str(rank) for rank, each in ranks_seen.items() if each.status is None)
    line = f"the scheduler says that the run ended well; the output of rank {silent} ends before that: a part was lost"
    return Failure(kind="rank_lost", evidence=(line,)) if silent else None


def _with_signals(end: SchedulerEnd, transcript: Transcript) -> SchedulerEnd:
    """Exit codes with that of a torchrun that was sent a signal, which is 1, as the signal's."""
    sent = {name: signal_of_torchrun(lines) for name, lines in transcript.logs.items() if end.exit_codes.get(name) == 1}
    codes = {**end.exit_codes, **{name: -number for name, number in sent.items() if number is not None}}
    return end._replace(exit_codes=codes)


def _rank(lines: list[bytes]) -> _Rank:
    told = parse_reports(lines)
    last: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    status = str(last.get("status")) if last.get("kind") == "end" else None
    return _Rank(told.started, told.reports, status, finite(last.get("time")) or 0.0)


def _last_seen(lines: list[bytes]) -> dict[str, Any]:
    events = (event for event in map(json.loads, reversed(lines)) if phase_of(event) is not None)
    last: dict[str, Any] = next(events, {})
    return {"phase": phase_of(last), "iteration": iteration_of(last)}


def _rank_ends(
    ranks_seen: dict[int, _Rank], rows: dict[int, FailedRank], streams: tuple[Stream, ...], end: SchedulerEnd
) -> Iterator[RankEnd]:
    """What is known of each rank. Its code is of its own events, else of torchrun, else of the scheduler where its task
    is one rank; it counts unless the scheduler ended the job, or the rank was ended because another had failed."""
    tasks = {stream.ranks[0]: end.exit_codes.get(stream.name) for stream in streams if len(stream.ranks) == 1}
    first_to_end = next(iter(end.exit_codes), None)  # a scheduler signals those that are left then
    first = next((stream.ranks for stream in streams if stream.name == first_to_end), ())
    for rank, each in ranks_seen.items():
        code = rows[rank].exit_code if rank in rows else tasks.get(rank)
        if each.status is not None:
            code = 0 if each.status == "ok" else 1
        if rank in rows:
            by_itself = rows[rank].is_first or code != -signal.SIGTERM
        else:
            by_itself = code is not None and (code > 0 or rank in first)
        ended_at = each.last_time if by_itself and end.verdict is None else None
        yield RankEnd(rank, code, ended_at, each.started, each.reports)


def _stream_ends(
    ranks_seen: dict[int, _Rank], streams: tuple[Stream, ...], end: SchedulerEnd, transcript: Transcript
) -> Iterator[RankEnd]:
    """The logs, which may be any rank's of their node, or the scheduler's own, which explain least and come last."""
    for number, stream in enumerate(streams):
        code = end.exit_codes.get(stream.name)
        was_killed = code is not None and code < 0  # what starts the ranks may be, and leave them to end well
        if stream.ranks and not was_killed and all(ranks_seen[rank].status == "ok" for rank in stream.ranks):
            continue
        by_itself = end.verdict is None and (code is None or code > 0 or stream.name == next(iter(end.exit_codes)))
        ended_at = max((ranks_seen[rank].last_time for rank in stream.ranks if code is not None), default=math.inf)
        yield RankEnd(
            rank=len(ranks_seen) + number,
            exit_code=code,
            ended_at=ended_at if by_itself else None,
            started=any(ranks_seen[rank].started for rank in stream.ranks),
            log=printable_lines(b"".join(transcript.logs.get(stream.name, []))[-TAIL_BYTES:]),
            called=stream.name,
        )
