"""How a container's run ended, from its node's report, the container runtime's and what the driver did. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from suite.launch.docker.patterns import runtime_failure
from suite.launch.outcome import Failure, FailureKind, Outcome

_TAIL_LINES = 12
#: What the node may take for the reason where the kernel killed a process: it cannot ask about its own container.
_OVERRULED_BY_OOM: tuple[FailureKind, ...] = ("rank_lost", "unknown", "hang", "nccl_timeout", "timeout")
_KILLED = 137
_TERMINATED = 143
#: what dockerd says of a container that ended while it was away
_UNSEEN = 255


class ContainerEnd(NamedTuple):
    """What is known of the end of one container."""

    ranks: int
    elapsed_seconds: float
    outcome: Outcome | None = None  # the node's own word
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""  # the container runtime's, e.g. why it could not start the program
    gone: str | None = None  # how the container or the runtime was lost
    trouble: tuple[str, ...] = ()  # what the runtime did meanwhile
    verdict: Failure | None = None  # why the driver ended it
    interrupted_by: str | None = None
    tail: tuple[str, ...] = ()  # last lines of the container's own log
    phase: str | None = None
    iteration: int | None = None


def conclude(end: ContainerEnd) -> Outcome:
    """The user's stop counts first, then the driver's verdict, the kernel's, the node's word, and the rest."""
    if end.interrupted_by is not None:
        return _outcome(end, "interrupted", _failure(end, "interrupted", f"the driver was sent {end.interrupted_by}"))
    if end.verdict is not None:
        return _outcome(end, "failed", end.verdict)
    if end.outcome is None and _succeeded_without_report(end):
        return Outcome(status="ok", exit_codes=dict.fromkeys(range(end.ranks), 0), elapsed_seconds=end.elapsed_seconds)
    if end.outcome is None:
        return _outcome(end, "failed", _silent(end))
    if end.oom_killed and _may_be_memory(end.outcome):
        return _outcome(end, "failed", _out_of_memory(end, end.outcome.failure))
    if end.outcome.status == "interrupted":
        return _outcome(end, "failed", _stopped_by_others(end, end.outcome))
    return end.outcome


def _succeeded_without_report(end: ContainerEnd) -> bool:
    """The node's report went with the connection, its exit code did not: 0 is what it ends with where all is well."""
    return end.exit_code == 0 and bool(end.trouble) and end.gone is None and not end.oom_killed


def _may_be_memory(outcome: Outcome) -> bool:
    return outcome.status == "ok" or outcome.failure is None or outcome.failure.kind in _OVERRULED_BY_OOM


def _out_of_memory(end: ContainerEnd, failure: Failure | None) -> Failure:
    evidence = failure.evidence if failure else ("every rank ended with exit code 0",)
    line = "the kernel killed a process of the container for want of memory (OOMKilled)"
    return _failure(end, "oom_host", line, *evidence)


def _stopped_by_others(end: ContainerEnd, outcome: Outcome) -> Failure:
    evidence = outcome.failure.evidence if outcome.failure else ()
    sent = next((line.rpartition(" ")[2] for line in evidence if "was sent" in line), "a stop signal")
    return _failure(end, "rank_lost", f"the container was sent {sent}, and not by this driver", *end.trouble)


def _silent(end: ContainerEnd) -> Failure:
    """The node reported no end."""
    if end.gone is not None:
        return _failure(end, "rank_lost", end.gone, *end.trouble)
    if end.oom_killed:
        return _failure(end, "oom_host", f"the container ended with exit code {end.exit_code} and OOMKilled")
    proven = runtime_failure(*filter(None, [end.error]), *end.tail)
    if proven is not None:
        return _failure(end, proven.kind, *proven.evidence)
    if end.exit_code in (_KILLED, _TERMINATED):
        word = f"the container was killed from outside (exit code {end.exit_code}, OOMKilled false)"
        return _failure(end, "rank_lost", word, *end.trouble)
    if end.exit_code == _UNSEEN and end.trouble:
        return _failure(end, "rank_lost", "the container ended while its runtime was away", *end.trouble)
    word = f"the container ended with exit code {end.exit_code} before its node reported how the run ended"
    return _failure(end, "unknown", word, *filter(None, [end.error]), *end.trouble, *end.tail[-_TAIL_LINES:])


def _outcome(end: ContainerEnd, status: Literal["failed", "interrupted"], failure: Failure) -> Outcome:
    codes = end.outcome.exit_codes if end.outcome else dict.fromkeys(range(end.ranks))
    return Outcome(status=status, exit_codes=codes, elapsed_seconds=end.elapsed_seconds, failure=failure)


def _failure(end: ContainerEnd, kind: FailureKind, *evidence: str) -> Failure:
    """Phase and iteration as the node reports them, else as the driver last saw them."""
    known = end.outcome.failure if end.outcome else None
    phase, iteration = (known.phase, known.iteration) if known and known.phase else (end.phase, end.iteration)
    return Failure(kind=kind, phase=phase, iteration=iteration, evidence=evidence)
