"""Runs that were submitted to clusters: how far they are, waiting for them, making their bundles, and what is left."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from suite.bundle.drafts import draft_folder
from suite.bundle.event_fields import is_moment
from suite.bundle.files import writing
from suite.bundle.manifest_file import parse_manifest
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle, end_fields, failure_fields
from suite.launch.cluster.ending import Transcript, read_streams, run_outcome
from suite.launch.cluster.launcher import Gathered, SchedulerEnd, SchedulerState
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.submission import FOLDER, Submission, read_submission, submission_path, submissions
from suite.launch.outcome import Outcome
from suite.spec.base import Frozen, UsageError
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
            now = without_hopeless(root, submission, now)
            if now.phase in ("running", "unknown"):
                find_scheduler(submission.launcher).keep(submission)
        if now.phase in ("over", "gone"):
            return
        time.sleep(pause)
        pause = min(2 * pause, poll_seconds)


def collect(root: Path, submission: Submission, gathered: Gathered) -> Record:
    """Make the bundle of a run that is over, whole or not at all. Raises UsageError when it exists or cannot be
    written, DamagedBundle when what came back cannot be trusted."""
    from suite.bundle.derive import derive  # imported when there is something to derive

    path = root / submission.run_id
    ranks = submission.manifest.layout.ranks
    transcript = read_streams(gathered.streams, ranks)
    gathered = gathered._replace(end=_with_times(gathered.end, transcript))
    outcome = run_outcome(ranks, gathered, transcript)
    draft = root / FOLDER / submission.run_id
    with writing(path):
        draft.parent.mkdir(parents=True, exist_ok=True)
    with writing(path), draft_folder(draft) as drafts:
        bundle = Bundle.create(drafts, submission.manifest)
        _write_output(bundle, transcript)
        bundle.write_environment(submission.environment)
        _write_driver(bundle, submission, gathered, outcome)
        record = derive(bundle)
        bundle.write_record(record)
        bundle.path.rename(path)
        drafts.rmdir()
    return record


def _with_times(end: SchedulerEnd, transcript: Transcript) -> SchedulerEnd:
    """Times that a scheduler has forgotten are taken from the run's own output."""
    own_times = {event["kind"]: event.get("time") for event in transcript.own}
    times: tuple[Any, Any] = (end.started or own_times.get("batch"), end.ended or own_times.get("batch_end"))
    started, ended = (float(time) if is_moment(time) else None for time in times)
    return end._replace(started=started, ended=ended)


def _write_output(bundle: Bundle, transcript: Transcript) -> None:
    found = {f"events/rank-{rank}.jsonl": lines for rank, lines in transcript.events.items()}
    found |= {f"logs/{name}.log": lines for name, lines in transcript.logs.items() if lines}
    for name, lines in found.items():
        path = bundle.path / name
        with writing(path), path.open("wb") as file:
            file.writelines(lines)


def _write_driver(bundle: Bundle, submission: Submission, gathered: Gathered, outcome: Outcome) -> None:
    """The driver's events as a driver that stayed would have written them, at the scheduler's own times."""
    ended = gathered.end.ended or time.time()
    started = gathered.end.started or submission.submitted or ended
    failure = outcome.failure
    with bundle.driver_events() as log:
        launch = {"launcher": submission.launcher, "ranks": submission.job.ranks, "pid": os.getpid()}
        log.write("launch", time=started, schema="suite/events/1", **launch)
        if failure is not None:
            log.write("failure", time=ended, **failure_fields(failure))
        log.write("end", time=ended, **end_fields(outcome, submission.job.ranks))


class Leftover(Frozen):
    """What the results folder keeps of a run besides its bundle."""

    run_id: str
    files: tuple[str, ...]
    bytes: int


class Cleaning(Frozen):
    """What can be removed, and why the rest stays."""

    removable: tuple[Leftover, ...]
    kept: dict[str, str]


def leftovers(root: Path, older_than: float | None = None) -> Cleaning:
    """Submissions and outputs of runs that are whole and ended ``older_than`` seconds ago. Raises UsageError."""
    found, kept = [], {}
    for submission in submissions(root):
        why = _needed(root, submission, older_than)
        if why is not None:
            kept[submission.run_id] = why
            continue
        files = [*find_scheduler(submission.launcher).files(submission), submission_path(root, submission.run_id)]
        sizes = {path: path.stat().st_size for path in files if path.is_file() and not path.is_symlink()}
        found.append(Leftover(run_id=submission.run_id, files=tuple(map(str, sizes)), bytes=sum(sizes.values())))
    return Cleaning(removable=tuple(found), kept=kept)


def remove_files(leftover: Leftover) -> None:
    """The output first, then the submission by which it is found. Raises UsageError."""
    for name in leftover.files:
        with writing(Path(name)):
            Path(name).unlink(missing_ok=True)


def _needed(root: Path, submission: Submission, older_than: float | None) -> str | None:
    """Why a run's files stay; ``None`` where its bundle holds all that they told."""
    bundle = Bundle(root / submission.run_id)
    if not bundle.path.exists():
        return "not collected"
    try:
        manifest, record = bundle.manifest(), bundle.record()
        if bundle.running():
            return "its bundle is being written"
    except DamagedBundle as error:
        return f"its bundle cannot be trusted: {error}"
    if record is None or (manifest.hash, record.run.launcher) != (submission.manifest.hash, submission.launcher):
        return "its bundle has no record yet, or is of another manifest or launcher"
    if submission.submitted is not None and (record.run.ended or 0.0) < submission.submitted:
        return "it was submitted again since"
    if older_than is not None and time.time() - (record.run.ended or 0.0) < older_than:
        return "too young"
    return None
