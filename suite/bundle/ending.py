"""How a run ended: its status and, when it did not end well, why."""

from suite.bundle.event_fields import DriverEnd, Failed, RankEnd
from suite.bundle.events import Events
from suite.bundle.facts import derivation
from suite.bundle.record import Failure, Status
from suite.bundle.timeline import Timeline
from suite.spec.manifest import Manifest

#: More than any run that failed had: a manifest may ask for tens of thousands of ranks of which none was there.
_MOST_PROBLEMS = 4096


def ending(events: Events, timeline: Timeline, manifest: Manifest) -> tuple[Status, Failure | None]:
    """Status and failure: the driver's classification, else the first failure that a rank reported, else unknown.

    A run is ok when the driver and every rank say so, nobody tells a failure and its work is one number. Without the
    driver's end event it was interrupted (the caller knows that no driver holds it). Only an ok run has no failure.
    """
    end, reported = events.of_driver(DriverEnd), _failure(events.of_driver(Failed), events)
    if end is None or end.status == "interrupted":
        evidence = "the driver was stopped by its user" if end else "the driver ended without writing its end"
        return "interrupted", reported or Failure(kind="interrupted", phase=None, evidence=(evidence,))
    problems = _problems(events, end, timeline, manifest)
    if not problems:
        return "ok", None
    earliest = min(events.of_all(Failed), key=lambda event: (event.time, event.rank), default=None)
    failure = reported or _failure(earliest, events)
    return "failed", failure or Failure(kind="unknown", phase=None, evidence=problems)


def _problems(events: Events, end: DriverEnd, timeline: Timeline, manifest: Manifest) -> tuple[str, ...]:
    """What speaks against an ok end, most telling first."""
    told: dict | list = end.exit_codes
    codes = told if isinstance(told, dict) else dict(enumerate(told))
    problems = [f"work: {timeline.counts_problem}"] if timeline.counts_problem else []
    if end.status == "failed":
        problems.append(f"the driver ended as failed; exit codes by rank: {end.exit_codes}")
    elif bad := {rank: code for rank, code in codes.items() if code}:
        problems.append(f"the driver ended as ok, but ranks did not by their exit codes: {bad}")
    if events.of_driver(Failed) or any(events.of_all(Failed)):
        problems.append("a failure was told")
    for rank in range(manifest.layout.ranks):
        rank_end = next(iter(events.of(rank, RankEnd)), None)
        if rank_end is None:
            problems.append(f"rank {rank} wrote no end")
        elif rank_end.status != "ok":
            problems.append(f"rank {rank} ended as failed after {rank_end.iterations} iterations")
    more = len(problems) - _MOST_PROBLEMS
    return tuple(problems) if more <= 0 else (*problems[:_MOST_PROBLEMS], f"and {more} more")


def _failure(event: Failed | None, events: Events) -> Failure | None:
    if event is None:
        return None
    iteration = event.iteration if derivation(events) >= 3 else None
    return Failure(kind=event.failure, phase=event.phase, evidence=tuple(event.evidence), iteration=iteration)
