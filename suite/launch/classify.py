"""Why a run failed: from what the ranks reported, how they ended, and what the driver saw. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from suite.launch.oom_kills import OomKills
from suite.launch.outcome import Failure, FailureKind
from suite.launch.patterns import PATTERNS, Match, Pattern, Role, strongest
from suite.launch.processes import signal_name

LOG_LINES = 12


class Report(NamedTuple):
    """A failure event of a rank: its own word, at its own time (Unix seconds)."""

    time: float
    failure: Failure


class RankEnd(NamedTuple):
    """What is known of one rank's end."""

    rank: int
    exit_code: int | None  # negative: signal; None: not known
    ended_at: float | None  # Unix seconds; None when the driver ended it, so that the code means nothing
    started: bool  # whether its start event was written
    reports: tuple[Report, ...]
    log: tuple[str, ...]  # the last lines of its standard output and error
    called: str | None = None  # a node's log, which may be any of its ranks'; None: it is this rank's own

    @property
    def name(self) -> str:
        return self.called or f"rank {self.rank}"


class RunEnd(NamedTuple):
    """What is known of the end of all ranks of one node or run."""

    ranks: tuple[RankEnd, ...]
    verdict: Failure | None = None  # why the driver itself stopped the run: time-out, hang, disk full
    proven: bool = False  # the verdict is a cause by itself, such as a kill for want of memory
    stopped_at: float | None = None  # when the driver began to end ranks; what they say afterwards is its doing
    oom_kills: OomKills | None = None  # by how much the kernel's counter of them rose during the run
    phase: str | None = None  # the last that rank 0 reported
    iteration: int | None = None


class Strength(IntEnum):
    """How well a finding explains the whole run's end; within one strength the earliest counts."""

    CAUSE = 0
    RAISED = 1  # a rank raised something that fits no pattern
    SYMPTOM = 2
    VERDICT = 3
    SILENT = 4  # a rank ended with an exit code and no word
    CONSEQUENCE = 5


_STRENGTH_OF_ROLE: dict[Role, Strength] = {
    "cause": Strength.CAUSE,
    "symptom": Strength.SYMPTOM,
    "consequence": Strength.CONSEQUENCE,
}
_STRENGTH_OF_KIND: dict[FailureKind, Strength] = {
    "unknown": Strength.RAISED,
    "nccl_timeout": Strength.SYMPTOM,
    "hang": Strength.SYMPTOM,
    "rank_lost": Strength.CONSEQUENCE,
}


class Finding(NamedTuple):
    strength: Strength
    time: float
    rank: int
    failure: Failure


def classify(end: RunEnd, patterns: tuple[Pattern, ...] = PATTERNS) -> Failure:
    """The root cause of a failed run: the strongest finding, and of equally strong ones the earliest.

    A rank that was killed or ran out of memory ends first; its neighbours then report a closed connection, a collective
    that timed out, or nothing. Those are named only where no cause is known.
    """
    findings = [finding for rank in end.ranks for finding in _of_rank(rank, end, patterns)]
    if end.verdict is not None:
        findings.append(Finding(Strength.CAUSE if end.proven else Strength.VERDICT, 0.0, -1, end.verdict))
    if not findings:
        return _failure(end, "unknown", "no rank told why the run ended")
    return min(findings, key=lambda finding: finding[:3]).failure


def _of_rank(rank: RankEnd, end: RunEnd, patterns: tuple[Pattern, ...]) -> Iterator[Finding]:
    reported = [report for report in rank.reports if end.stopped_at is None or report.time <= end.stopped_at]
    for report in reported:
        yield _reported(rank, report, end, patterns)
    if not reported and rank.ended_at is not None and rank.exit_code != 0:
        yield _ended(rank, rank.exit_code, rank.ended_at, end, patterns)


def _reported(rank: RankEnd, report: Report, end: RunEnd, patterns: tuple[Pattern, ...]) -> Finding:
    """A rank's own failure event. Where it could not name a kind, its lines may."""
    failure = report.failure
    evidence = [f"rank {rank.rank}: {line}" for line in failure.evidence]
    kind, strength = failure.kind, _STRENGTH_OF_KIND.get(failure.kind, Strength.CAUSE)
    if strength is not Strength.CAUSE:
        match = strongest(failure.evidence, patterns, rank.started)
        if match:
            kind, strength = match.pattern.kind, _STRENGTH_OF_ROLE[match.pattern.role]
    phase, iteration = (end.phase, end.iteration) if failure.phase is None else (failure.phase, failure.iteration)
    whole = Failure(kind=kind, phase=phase, iteration=iteration, evidence=tuple(evidence))
    return Finding(strength, report.time, rank.rank, whole)


def _ended(rank: RankEnd, code: int | None, time: float, end: RunEnd, patterns: tuple[Pattern, ...]) -> Finding:
    """A rank that ended badly by itself, or nobody knows how, without a failure event: log and exit code must tell."""
    match = strongest(rank.log, patterns, rank.started)
    # a process aborts by its own doing, and has said why before
    lost = code is not None and code < 0 and code != -signal.SIGABRT
    if match and (match.pattern.role == "cause" or not lost):
        return _by_log(rank, match, time, end)
    ending = f"{rank.name} ended {how(code)}"
    if code == -signal.SIGKILL and end.oom_kills and end.oom_kills.kills > 0:
        count, name = end.oom_kills
        counter = f"the kernel's count of out-of-memory kills ({name}) rose by {count}"
        return Finding(Strength.CAUSE, time, rank.rank, _failure(end, "oom_host", ending, counter))
    if code == -signal.SIGXFSZ:
        limit = "a file that it wrote has the size that its shell allows (ulimit -f): raise the limit"
        return Finding(Strength.CAUSE, time, rank.rank, _failure(end, "config", ending, limit))
    last = [f"{rank.name}: {line}" for line in rank.log[-LOG_LINES:]]
    kind: FailureKind = "rank_lost" if lost else "unknown"
    strength = Strength.CAUSE if lost else Strength.SILENT
    return Finding(strength, time, rank.rank, _failure(end, kind, ending, *last))


def _by_log(rank: RankEnd, match: Match, time: float, end: RunEnd) -> Finding:
    ending = f"{rank.name} ended {how(rank.exit_code)}"
    failure = _failure(end, match.pattern.kind, f"{rank.name}: {match.line}", ending)
    return Finding(_STRENGTH_OF_ROLE[match.pattern.role], time, rank.rank, failure)


def how(exit_code: int | None) -> str:
    """``by SIGKILL``, ``with exit code 1``, or that it is not known."""
    if exit_code is None:
        return "in a way that is not known"
    return f"by {signal_name(exit_code)}" if exit_code < 0 else f"with exit code {exit_code}"


def _failure(end: RunEnd, kind: FailureKind, *evidence: str) -> Failure:
    return Failure(kind=kind, phase=end.phase, iteration=end.iteration, evidence=evidence)
