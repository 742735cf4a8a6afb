"""Runs that were submitted to clusters: how far they are, waiting for them, and making their bundles."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from suite.bundle.manifest_file import parse_manifest
from suite.bundle.record import Record
from suite.conduct.cluster.collect import collect
from suite.conduct.cluster.to_do import look
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.scheduler import SchedulerState
from suite.launch.cluster.submission import Submission, read_submission, submission_path, submissions
from suite.spec.base import Frozen, UsageError

#: between two looks at a run; the first ones come sooner
POLL_SECONDS = 5.0
#: how long a cluster that has answered before may stay silent while a run is waited for
PATIENCE_SECONDS = 600.0
_RENDERED = SchedulerState(
    phase="gone", word="rendered", detail="not submitted from here, and the cluster does not know it"
)
_COLLECTED = SchedulerState(phase="over", word="collected")


class Standing(Frozen):
    """One run that was submitted, and how far it is."""

    submission: Submission
    state: SchedulerState
    collected: bool

    def line(self) -> str:
        """The run and how far it is."""
        return f"{self.submission.run_id}: {self.state.word} {self.state.detail}".rstrip()

    def document(self) -> dict[str, Any]:
        """As ``suite status --json`` prints it."""
        own = self.submission
        facts = {"run": own.run_id, "launcher": own.launcher, "submitted": own.submitted, "engine": own.scheduler}
        return {**facts, "collected": self.collected, **self.state.model_dump(mode="json")}


def chosen(root: Path, run_ids: Sequence[str]) -> list[Submission]:
    """Those that are named, else all. Raises UsageError for unknown ones, DamagedBundle for an impossible manifest."""
    found = [read_submission(submission_path(root, run_id)) for run_id in run_ids] or list(submissions(root))
    for each in found:
        parse_manifest(each.manifest.model_dump_json(by_alias=True), f"the manifest of {each.run_id}")
    return found


def standing(root: Path, submission: Submission) -> Standing:
    """Raises UsageError when the cluster cannot be asked."""
    if (root / submission.run_id).exists():
        return Standing(submission=submission, state=_COLLECTED, collected=True)
    state = look(find_scheduler(submission.launcher), submission)
    if state.phase == "gone" and submission.submitted is None:
        state = _RENDERED
    return Standing(submission=submission, state=state, collected=False)


def asked(root: Path, submission: Submission) -> Standing:
    """The same, with the phase ``unknown`` and the reason where the cluster cannot be asked."""
    try:
        return standing(root, submission)
    except UsageError as error:
        state = SchedulerState(phase="unknown", word="no answer", detail=str(error))
        return Standing(submission=submission, state=state, collected=False)


def collect_run(root: Path, submission: Submission) -> Record:
    """Make the bundle of a run that is over. Raises UsageError where it is not, or nothing came back."""
    now = without_hopeless(root, standing(root, submission))
    if now.collected:
        raise UsageError(f"{root / submission.run_id} exists: the run is collected already; nothing is overwritten")
    if now.state.phase in ("pending", "running"):
        raise UsageError(
            f"{submission.run_id} is not over: {now.state.word} {now.state.detail}; "
            "wait for it with suite collect --wait, or end it with suite cancel"
        )
    return collect(root, submission, find_scheduler(submission.launcher).gather(submission))


def without_hopeless(root: Path, now: Standing) -> Standing:
    """The same, after a run was ended that can never end well: it would hold its devices until its deadline. Its bundle
    says why. Raises UsageError."""
    if now.state.phase not in ("pending", "running") or now.state.hopeless is None:
        return now
    find_scheduler(now.submission.launcher).cancel(now.submission)
    return standing(root, now.submission)


def wait_until_over(
    root: Path, submission: Submission, on_change: Callable[[Standing], None], poll_seconds: float = POLL_SECONDS
) -> None:
    """Come back when the cluster is done with the run. Raises UsageError when it cannot be asked at first, or later for
    longer than its controller may be busy or away."""
    before: SchedulerState | None = None
    pause = poll_seconds / 16
    give_up = 0.0
    while True:
        now = asked(root, submission)
        if now.state.phase != "unknown":
            give_up = time.monotonic() + PATIENCE_SECONDS
        elif time.monotonic() >= give_up:
            raise UsageError(now.state.detail)
        if now.state != before:
            on_change(now)
            before = now.state
        with suppress(UsageError):  # a cluster that does not answer now is asked again
            if now.state.phase in ("running", "unknown"):
                find_scheduler(submission.launcher).keep(submission)
            now = without_hopeless(root, now)
        if now.state.phase in ("over", "gone"):
            return
        time.sleep(pause)
        pause = min(2 * pause, poll_seconds)
