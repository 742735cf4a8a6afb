"""From what came back of a cluster to a bundle like any other, with its record."""

import os
import time
from pathlib import Path

from suite.bundle.derive import derive
from suite.bundle.drafts import draft_folder
from suite.bundle.event_fields import is_moment
from suite.bundle.files import writing
from suite.bundle.record import Record
from suite.bundle.store import Bundle, end_fields, failure_fields
from suite.launch.cluster.ending import Transcript, read_streams, run_outcome
from suite.launch.cluster.scheduler import Gathered, SchedulerEnd
from suite.launch.cluster.submission import FOLDER, Submission
from suite.launch.outcome import Outcome
from suite.spec.base import UsageError


def collect(root: Path, submission: Submission, gathered: Gathered) -> Record:
    """Make the bundle of a run that is over, whole or not at all. Raises UsageError when it exists or cannot be
    written, DamagedBundle when what came back cannot be trusted."""
    path = root / submission.run_id
    if os.path.lexists(path):
        raise UsageError(f"{path} exists; nothing is overwritten")
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
    times = {"started": end.started or own_times.get("batch"), "ended": end.ended or own_times.get("batch_end")}
    return end.model_copy(
        update={name: float(time) for name, time in times.items() if time is not None and is_moment(time)}
    )


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
