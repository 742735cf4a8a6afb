"""How a run on a cluster ended, from its ranks' events, torchrun, the logs and the scheduler. Pure."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

from suite.launch.classify import RankEnd, Report, RunEnd, classify
from suite.launch.cluster.scheduler import Gathered, SchedulerEnd, Stream
from suite.launch.cluster.torchrun import FailedRank, failed_ranks, signal_of_torchrun
from suite.launch.cluster.transcript import Transcript
from suite.launch.outcome import Failure, Outcome
from suite.launch.patterns import PATTERNS
from suite.launch.traces import TAIL_BYTES, finite, iteration_of, parse_reports, phase_of, printable_lines


class _Rank(NamedTuple):
    """What is known of one rank from its own events."""

    started: bool
    reports: tuple[Report, ...]
    status: str | None  # of its end event
    last_time: float


def run_outcome(ranks: int, gathered: Gathered, transcript: Transcript) -> Outcome:
    """The run's end: ok only where every rank reports ok and nothing contradicts it."""
    gathered = gathered._replace(end=_with_signals(gathered.end, transcript))
    streams, end, patterns = gathered
    ranks_seen = {rank: _rank(transcript.events.get(rank, [])) for rank in range(ranks)}
    rows = _rows(streams, transcript)
    codes = _exit_codes(ranks_seen, rows, streams, end)
    phase, iteration = _last_seen(transcript.events.get(0, []))
    elapsed = end.ended - end.started if end.started and end.ended and end.ended > end.started else 0.0
    if end.status == "interrupted":
        failure = end.verdict or Failure(kind="interrupted")
        failure = failure.model_copy(update={"phase": phase, "iteration": iteration})
        return Outcome(status="interrupted", exit_codes=codes, elapsed_seconds=elapsed, failure=failure)
    if end.status != "failed" and all(rank.status == "ok" for rank in ranks_seen.values()):
        return Outcome(status="ok", exit_codes=codes, elapsed_seconds=elapsed)
    ends = (*_rank_ends(ranks_seen, codes, rows, gathered), *_stream_ends(ranks_seen, streams, end, transcript))
    verdict = end.verdict or (_cut_off(ranks_seen) if end.status == "ok" else None)
    verdict = verdict and verdict.model_copy(update={"phase": phase, "iteration": iteration})
    whole = RunEnd(ranks=ends, verdict=verdict, proven=end.proven, phase=phase, iteration=iteration)
    failure = classify(whole, (*PATTERNS, *patterns))
    failure = failure.model_copy(update={"evidence": (*failure.evidence, *transcript.notes)})
    return Outcome(status="failed", exit_codes=codes, elapsed_seconds=elapsed, failure=failure)


def _cut_off(ranks_seen: dict[int, _Rank]) -> Failure | None:
    """A runtime that is killed loses what its containers print until it is back, also that they are done."""
    silent = ", ".join(str(rank) for rank, each in ranks_seen.items() if each.status is None)
    if not silent:
        return None
    line = f"the scheduler says that the run ended well; the output of rank {silent} ends before that: a part was lost"
    return Failure(kind="rank_lost", evidence=(line,))


def _with_signals(end: SchedulerEnd, transcript: Transcript) -> SchedulerEnd:
    """Exit codes with that of a torchrun that was sent a signal, which is 1, as the signal's."""
    codes: dict[str, int] = {}
    for name, code in end.exit_codes.items():
        number = signal_of_torchrun(transcript.logs.get(name, ())) if code == 1 else None
        codes[name] = code if number is None else -number
    return end.model_copy(update={"exit_codes": codes})


def _rank(lines: list[bytes]) -> _Rank:
    told = parse_reports(lines)
    last: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return _Rank(
        started=told.started,
        reports=told.reports,
        status=str(last.get("status")) if last.get("kind") == "end" else None,
        last_time=finite(last.get("time")) or 0.0,
    )


def _last_seen(lines: list[bytes]) -> tuple[str | None, int | None]:
    """The last phase that rank 0 reported, and its iteration."""
    for line in reversed(lines):
        event = json.loads(line)
        if phase_of(event) is not None:
            return phase_of(event), iteration_of(event)
    return None, None


def _rows(streams: tuple[Stream, ...], transcript: Transcript) -> dict[int, FailedRank]:
    """What torchrun reports of failed ranks, on whichever node."""
    rows: dict[int, FailedRank] = {}
    for stream in streams:
        found = failed_ranks(transcript.logs.get(stream.name, []))
        rows.update({rank: row for rank, row in found.items() if rank in stream.ranks})
    return rows


def _exit_codes(
    ranks_seen: dict[int, _Rank], rows: dict[int, FailedRank], streams: tuple[Stream, ...], end: SchedulerEnd
) -> dict[int, int | None]:
    """By rank: from its own events, else from torchrun, else from the scheduler where its task is one rank."""
    tasks = {stream.ranks[0]: end.exit_codes.get(stream.name) for stream in streams if len(stream.ranks) == 1}
    codes: dict[int, int | None] = {}
    for rank, each in ranks_seen.items():
        if each.status is not None:
            codes[rank] = 0 if each.status == "ok" else 1
        else:
            codes[rank] = rows[rank].exit_code if rank in rows else tasks.get(rank)
    return codes


def _rank_ends(
    ranks_seen: dict[int, _Rank], codes: dict[int, int | None], rows: dict[int, FailedRank], gathered: Gathered
) -> Iterator[RankEnd]:
    """What is known of each rank. Its code is its own unless the scheduler ended the job, or torchrun or the
    scheduler ended the rank because another had failed."""
    streams, end, _ = gathered
    first = next((stream.ranks for stream in streams if stream.name == _first_to_end(end)), ())
    for rank, each in ranks_seen.items():
        code = codes[rank]
        if rank in rows:
            by_itself = rows[rank].is_first or code != -signal.SIGTERM
        else:
            by_itself = code is not None and (code > 0 or rank in first)
        yield RankEnd(
            rank=rank,
            exit_code=code,
            ended_at=each.last_time if by_itself and end.verdict is None else None,
            started=each.started,
            reports=each.reports,
            log=(),
        )


def _first_to_end(end: SchedulerEnd) -> str | None:
    """Name of the stream whose task ended badly first; a scheduler signals those that are left then."""
    return next(iter(end.exit_codes), None)


def _stream_ends(
    ranks_seen: dict[int, _Rank], streams: tuple[Stream, ...], end: SchedulerEnd, transcript: Transcript
) -> Iterator[RankEnd]:
    """The logs, which may be any rank's of their node, or the scheduler's own, which explain least and come last."""
    for number, stream in enumerate(streams):
        code = end.exit_codes.get(stream.name)
        was_killed = code is not None and code < 0  # what starts the ranks may be, and leave them to end well
        if stream.ranks and not was_killed and all(ranks_seen[rank].status == "ok" for rank in stream.ranks):
            continue
        by_itself = end.verdict is None and (code is None or code > 0 or stream.name == _first_to_end(end))
        times = [ranks_seen[rank].last_time for rank in stream.ranks if code is not None]
        ended_at = max(times, default=math.inf)
        yield RankEnd(
            rank=len(ranks_seen) + number,
            exit_code=code,
            ended_at=ended_at if by_itself else None,
            started=any(ranks_seen[rank].started for rank in stream.ranks),
            reports=(),
            log=printable_lines(b"".join(transcript.logs.get(stream.name, []))[-TAIL_BYTES:]),
            called=stream.name,
        )
