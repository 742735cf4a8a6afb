"""Runs that were submitted to clusters: how far they are, waiting for them, and making their bundles."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from suite.bundle.manifest_file import parse_manifest
from suite.bundle.record import Record
from suite.conduct.cluster.collect import collect
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.scheduler import SchedulerState
from suite.launch.cluster.submission import Submission, read_submission, submission_path, submissions
from suite.spec.base import UsageError
from suite.spec.terminal import note

#: between two looks at a run; the first ones come sooner
POLL_SECONDS = 5.0
#: how long a cluster that has answered before may stay silent while a run is waited for
PATIENCE_SECONDS = 600.0
COLLECTED = SchedulerState(phase="over", word="collected")
_RENDERED = SchedulerState(
    phase="gone", word="rendered", detail="not submitted from here, and the cluster does not know it"
)
_NOT_TAKEN = SchedulerState(phase="gone", word="not taken", detail="the cluster never answered, and does not know it")


def chosen(root: Path, run_ids: Sequence[str]) -> list[Submission]:
    """Those that are named, else all. Raises UsageError for unknown ones, DamagedBundle for an impossible manifest."""
    found = [read_submission(submission_path(root, run_id)) for run_id in run_ids] or submissions(root)
    for each in found:
        parse_manifest(each.manifest.model_dump_json(by_alias=True), f"the manifest of {each.run_id}")
    return found


def look(submission: Submission) -> SchedulerState:
    """How far a run is by its cluster; ``pending`` while one that gave no answer may still take it. Raises UsageError
    when it cannot be asked."""
    scheduler = find_scheduler(submission.launcher)
    state = scheduler.look(submission)
    if state.phase != "gone":
        return state
    if submission.submitted is None:
        return _RENDERED
    if submission.sending is None:
        return state
    since, settled = time.time() - submission.submitted, scheduler.settle_seconds
    if abs(since) >= settled:
        return _NOT_TAKEN
    told = f"handed over {since:.0f} s ago without an answer; not taken, if it is unknown after {settled:.0f} s"
    return SchedulerState(phase="pending", word="sending", detail=told)


def standing(root: Path, submission: Submission) -> SchedulerState:
    """As ``look``; ``COLLECTED`` where it has its bundle."""
    return COLLECTED if (root / submission.run_id).exists() else look(submission)


def asked(root: Path, submission: Submission) -> SchedulerState:
    """The same, with the phase ``unknown`` and the reason where the cluster cannot be asked."""
    try:
        return standing(root, submission)
    except UsageError as error:
        return SchedulerState(phase="unknown", word="no answer", detail=str(error))


def note_state(submission: Submission, state: SchedulerState) -> None:
    note(f"{submission.run_id}: {state.line}")


def collect_run(root: Path, submission: Submission) -> Record:
    """Make the bundle of a run that is over. Raises UsageError where it is not, or nothing came back."""
    now = without_hopeless(root, submission, standing(root, submission))
    if now == COLLECTED:
        raise UsageError(f"{root / submission.run_id} exists: the run is collected already; nothing is overwritten")
    if now.is_under_way:
        raise UsageError(
            f"{submission.run_id} is not over: {now.line}; "
            "wait for it with suite collect --wait, or end it with suite cancel"
        )
    return collect(root, submission, find_scheduler(submission.launcher).gather(submission))


def without_hopeless(root: Path, submission: Submission, now: SchedulerState) -> SchedulerState:
    """The same, after a run was ended that can never end well: it would hold its devices until its deadline. Its bundle
    says why. Raises UsageError."""
    if not now.is_under_way or now.hopeless is None:
        return now
    find_scheduler(submission.launcher).cancel(submission)
    return standing(root, submission)


def wait_until_over(
    root: Path, submission: Submission, on_change: Callable[[SchedulerState], None], poll_seconds: float = POLL_SECONDS
) -> None:
    """Come back when the cluster is done with the run. Raises UsageError when it cannot be asked at first, or later for
    longer than its controller may be busy or away."""
    before: SchedulerState | None = None
    pause = poll_seconds / 16
    give_up = 0.0
    while True:
        now = asked(root, submission)
        if now.phase != "unknown":
            give_up = time.monotonic() + PATIENCE_SECONDS
        elif time.monotonic() >= give_up:
            raise UsageError(now.detail)
        if now != before:
            on_change(now)
            before = now
        with suppress(UsageError):  # a cluster that does not answer now is asked again
            if now.phase in ("running", "unknown"):
                find_scheduler(submission.launcher).keep(submission)
            now = without_hopeless(root, submission, now)
        if now.phase in ("over", "gone"):
            return
        time.sleep(pause)
        pause = min(2 * pause, poll_seconds)
