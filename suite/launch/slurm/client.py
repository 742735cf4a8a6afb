"""Slurm's own commands, each with a time limit, and their refusals as one line."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from suite.spec.base import UsageError

ASK_SECONDS = 60.0
_FIELDS = "%i|%T|%S|%e|%N|%r|%Z"
_LEAST_FIELDS, _MOST_DIGITS = 6, 12
_NO_SUCH_JOB = "Invalid job id specified"
#: which cluster is meant; all else that a job finds under SLURM_ speaks of that job
_CLUSTER = frozenset(("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"))


class QueueEntry(NamedTuple):
    """What squeue, or sacct after it, reports of one job."""

    job: str
    state: str  # PENDING, RUNNING, COMPLETED ...
    started: float | None  # Unix seconds
    ended: float | None
    nodes: str
    reason: str
    folder: str = ""  # working directory; sacct does not report it


def submit(script: str) -> str:
    """Hand a script over and give back the job's id. Raises UsageError with sbatch's message when it is refused.

    It is asked for a trial first: a job that can never start is refused then, where it would wait for ever.
    """
    _call("sbatch", "--test-only", text=script)
    return _call("sbatch", "--parsable", text=script).split(";")[0].strip()


def find(job: str) -> QueueEntry | None:
    """The job as the queue has it, else as the accounting has it; ``None`` where both do not know it (any more)."""
    return _last(_queued(f"--jobs={job}")) or _accounted(job)


def find_by_name(name: str, folder: str, index: int | None) -> QueueEntry | None:
    """The user's own job of that name and working directory, where the driver ended before it could write its id down.

    ``index``: which one of an array.
    """
    jobs = [job for job in _queued("--me", f"--name={name}") if job.folder == folder]
    return _last([job for job in jobs if index is None or job.job.endswith(f"_{index}")])


def cancel(job: str) -> None:
    """Raises UsageError when Slurm does not know the job or refuses."""
    _call("scancel", job)


def _queued(*which: str) -> list[QueueEntry]:
    try:
        lines = _call("squeue", "--noheader", "--array", "--states=all", f"--format={_FIELDS}", *which).splitlines()
    except UsageError as error:
        if _NO_SUCH_JOB in str(error):
            return []
        raise
    return [_entry(line) for line in lines]


def _last(jobs: list[QueueEntry]) -> QueueEntry | None:
    return jobs[-1] if jobs else None


def _accounted(job: str) -> QueueEntry | None:
    """Clusters without accounting, or without this job in it, know nothing more."""
    fields = "JobID,State,Start,End,NodeList,Reason"
    try:
        lines = _call("sacct", "-X", "-n", "-P", "-j", job, "-o", fields).splitlines()
    except UsageError:
        return None
    return _entry(lines[-1]) if lines else None


def _entry(line: str) -> QueueEntry:
    """Raises UsageError for a line that is none of a job."""
    fields = line.split("|", 6)
    if len(fields) < _LEAST_FIELDS or not fields[1].strip():
        raise UsageError(f"Slurm's answer is no job: {line[:200]!r}")
    job, state, started, ended, nodes, reason, *folder = fields
    # sacct: "CANCELLED by 1000"
    return QueueEntry(job, state.split()[0], _moment(started), _moment(ended), nodes, reason, *folder)


def _moment(text: str) -> float | None:
    return float(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _call(*command: str, text: str | None = None) -> str:
    """Standard output. Raises UsageError when there is no such command, it fails, or does not answer."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, env=_environment(), timeout=ASK_SECONDS
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no Slurm here: {command[0]} is not on the PATH; run this on a login node of the cluster"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"Slurm did not answer within {ASK_SECONDS:g} s ({command[0]})") from error
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise UsageError(
            f"Slurm refuses ({command[0]}): {_error_message(done.stderr) or f'exit code {done.returncode}'}"
        )
    return done.stdout


def _environment() -> dict[str, str]:
    """Without what describes the allocation that this process runs in: a job would inherit it, and its srun obey it."""
    inside = "SLURM_JOB_ID" in os.environ
    own = {name for name in os.environ if inside and name.startswith("SLURM_")} - _CLUSTER
    return {**{name: os.environ[name] for name in os.environ.keys() - own}, "SLURM_TIME_FORMAT": "%s"}


def _error_message(errors: str) -> str:
    """What a command complained of, in one line without its own name before each."""
    lines = [line.split("error: ", 1)[-1].strip() for line in errors.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))
