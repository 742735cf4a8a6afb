"""What a cluster says of a submission, also of one whose answer was never written down."""

from __future__ import annotations

import time

from suite.launch.cluster.scheduler import Scheduler, SchedulerState
from suite.launch.cluster.submission import Submission


def look(scheduler: Scheduler, submission: Submission) -> SchedulerState:
    """How far a run is; ``pending`` while a cluster may still take it that was given it without an answer.

    Raises UsageError when the cluster cannot be asked.
    """
    state = scheduler.look(submission)
    if state.phase != "gone" or submission.sending is None or submission.submitted is None:
        return state
    since = time.time() - submission.submitted
    if abs(since) < scheduler.settle_seconds:
        return SchedulerState(
            phase="pending",
            word="sending",
            detail=f"handed over {since:.0f} s ago without an answer; not taken, if it is unknown after "
            f"{scheduler.settle_seconds:.0f} s",
        )
    return SchedulerState(phase="gone", word="not taken", detail="the cluster never answered, and does not know it")
