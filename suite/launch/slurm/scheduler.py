"""Slurm as a cluster scheduler: where a submitted run is, how to end it, and what it left."""

import re
from pathlib import Path
from typing import Any

from suite.launch.cluster.launcher import Gathered, Phase, SchedulerEnd, SchedulerState
from suite.launch.cluster.submission import Submission
from suite.launch.job import Job
from suite.launch.outcome import EndStatus
from suite.launch.slurm import client
from suite.launch.slurm.output import SLURM_PATTERNS, read_output, verdict
from suite.launch.stream import read_on
from suite.spec.base import UsageError
from suite.spec.foreign import lines_of, open_plain

_WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
_RUNS = ("RUNNING", "CONFIGURING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED")
#: More than any job prints; a file of holes can be of any size.
_MOST_OUTPUT_BYTES = 64 << 30
#: As Slurm writes it: of a job, a member of an array, a part of a heterogeneous job.
_JOB = re.compile(r"\d{1,18}([_+]\d{1,18})?")


class SlurmScheduler:
    """See ``Scheduler``. A submission's scheduler facts: ``name`` and ``index`` (in an array, else null), ``job``
    (null: its id was not written down), ``output`` (its file is this, a dash, the job's id and .out), ``starter``."""

    name = "slurm"
    #: sbatch is given a minute, and a controller that is slow or comes back shows a job when it has read its own state
    settle_seconds = 180.0

    def facts(self, job: Job) -> dict[str, Any]:
        """Nothing is known of the nodes before Slurm chooses them; the ranks report them."""
        return {}

    def look(self, submission: Submission) -> SchedulerState:
        found = self._find(submission)
        if found is None:
            if submission.submitted is not None and _output_path(submission, None).is_file():
                detail = f"{_unknown(submission)}; its output is there"
                return SchedulerState(phase="over", word="forgotten", detail=detail)
            return SchedulerState(phase="gone", word="unknown", detail=_unknown(submission))
        where = f" on {found.nodes}" if found.nodes else ""
        reason = f" ({found.reason})" if found.reason else ""
        phase: Phase = "pending" if found.state in _WAITS else "running" if found.state in _RUNS else "over"
        return SchedulerState(phase=phase, word=found.state, detail=f"job {found.job}{where}{reason}")

    def cancel(self, submission: Submission) -> None:
        found = self._find(submission)
        if found is None:
            raise UsageError(f"{submission.run_id}: {_unknown(submission)}")
        if found.state not in (*_WAITS, *_RUNS):
            return
        # a submission that somebody handed on may name any job of whoever cancels
        name = submission.fact("name", str)
        if not client.is_called(found.job, name):
            told = f"job {found.job} is not yours or is not called {name!r}; scancel {found.job} ends it all the same"
            raise UsageError(f"{submission.run_id}: {told}")
        client.cancel(found.job)

    def gather(self, submission: Submission) -> Gathered:
        found = self._find(submission)
        path, layout = _output_path(submission, found), submission.manifest.layout
        starter = submission.fact("starter", str)
        try:
            with open_plain(path, str(path), _MOST_OUTPUT_BYTES) as file:
                output = read_output(lines_of(file), layout, starter)
        except FileNotFoundError as error:
            if found is None:
                told = f"{_unknown(submission)}, and there is no output in {path}"
                raise UsageError(f"{submission.run_id}: nothing came back: {told}") from error
            output = read_output((), layout, starter)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        state = found.state if found else None
        why = verdict(output.own, state, found.reason if found else "")
        status: EndStatus | None = "failed"
        if why is not None and why.kind == "interrupted":
            status = "interrupted"
        elif why is None and state in (None, "COMPLETED"):
            status = "ok" if state else None
        end = SchedulerEnd(
            status=status,
            verdict=why,
            proven=why is not None and why.kind in ("oom_host", "rank_lost"),
            exit_codes=output.exit_codes,
            started=found.started if found else None,
            ended=found.ended if found else None,
        )
        return Gathered(output.streams, end, SLURM_PATTERNS)

    def printed(self, submission: Submission, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
        path = _output_path(submission, None if _job(submission) else self._find(submission))
        layout, is_first = submission.manifest.layout, not place
        output = read_output(read_on(path, place, lines * (layout.ranks + 1)), layout, submission.fact("starter", str))
        found = [(stream.name, list(stream.lines)) for stream in output.streams]
        return [(name, printed[-lines:] if is_first else printed) for name, printed in found]

    def keep(self, submission: Submission) -> None:
        """Nothing: the output lies in files already."""

    def files(self, submission: Submission) -> list[Path]:
        # an attempt may have had a mark of its own behind the name
        name = re.sub(r"-[0-9a-f]{8}$", "", Path(submission.fact("output", str)).name)
        return _outputs(submission, rf"{re.escape(name)}(-[0-9a-f]{{8}})?")

    @staticmethod
    def _find(submission: Submission) -> client.QueueEntry | None:
        job = _job(submission)
        if job is not None:
            return client.find(job)
        folder = str(Path(submission.fact("output", str)).parent)
        return client.find_by_name(submission.fact("name", str), folder, _index(submission))


def _output_path(submission: Submission, found: client.QueueEntry | None) -> Path:
    """The job's own output; of a job whose id nobody knows, the newest of its name."""
    start = Path(submission.fact("output", str))
    job = _job(submission) or (None if found is None else found.job)
    if job is not None:
        return start.with_name(f"{start.name}-{job}.out")
    left = _outputs(submission, re.escape(start.name))
    return max(left, key=lambda path: path.stat().st_mtime, default=start.with_name(f"{start.name}.out"))


def _outputs(submission: Submission, name: str) -> list[Path]:
    """The outputs beside its own that begin with this pattern and are of the same member of an array."""
    index = _index(submission)
    own = re.compile(name + (r"-\d+" if index is None else rf"-\d+_{index}") + r"\.out")
    return [path for path in Path(submission.fact("output", str)).parent.glob("*.out") if own.fullmatch(path.name)]


def _unknown(submission: Submission) -> str:
    return f"Slurm knows no job {_job(submission) or 'named ' + submission.fact('name', str)} (any more)"


def _job(submission: Submission) -> str | None:
    job: str | None = submission.fact("job", str, type(None))
    if job is not None and not _JOB.fullmatch(job):
        raise UsageError(f"{submission.run_id}: {ascii(job)[:90]} in its submission file is no job of Slurm")
    return job


def _index(submission: Submission) -> int | None:
    return submission.fact("index", int, type(None))
