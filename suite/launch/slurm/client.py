"""Slurm's own commands, each with a time limit, and their refusals as one line."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from suite.launch.cluster.launcher import Unanswered
from suite.spec.base import UsageError

ASK_SECONDS = 60.0
_FIELDS = "%i|%T|%S|%e|%N|%r|%Z"
#: squeue's reasons of a job that waits for what will never be; others pass.
NEVER = {
    *("PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "InvalidAccount"),
    *("InvalidQOS", "AccountNotAllowed", "QOSNotAllowed", "QOSMaxNodePerJobLimit", "QOSMaxWallDurationPerJobLimit"),
    *("AssocMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit"),
}
REASON_SECONDS = 3.0
#: which cluster is meant; all else that a job finds under SLURM_ speaks of that job
_CLUSTER = {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"}
#: what overrides a script's own lines, so that its output would not be found or not come at all
_MISLEADING = {
    *("SBATCH_ARRAY_INX", "SBATCH_ERROR", "SBATCH_INPUT", "SBATCH_JOB_NAME", "SBATCH_OPEN_MODE", "SBATCH_OUTPUT"),
    *("SBATCH_REQUEUE", "SBATCH_NO_REQUEUE", "SBATCH_TIMELIMIT", "SBATCH_WAIT"),
}
#: of slurm_strerror(): the request was sent, and no answer came back
_NO_ANSWER = re.compile(
    r"timed out|timeout|Zero Bytes were transmitted|not responding|Unable to contact|Connection (reset|closed|aborted)"
    r"|[Cc]ommunication|Unexpected message received|Send/Recv"
)


class NoAnswer(UsageError):
    """The controller did not answer, or not in time: what it was asked for may have happened."""


class QueueEntry(NamedTuple):
    """What squeue, or sacct after it, reports of one job."""

    job: str
    state: str  # PENDING, RUNNING, COMPLETED ...
    started: float | None  # Unix seconds
    ended: float | None
    nodes: str
    reason: str
    folder: str = ""  # working directory; sacct does not report it


def submit(script: str, *options: str) -> str:
    """Hand a script over and give back the job's id. ``options``: of sbatch, before the script's own. Raises UsageError
    when it is refused, as a job is that can never start, and leaves nothing; Unanswered where the controller may have
    taken it."""
    _call("sbatch", "--test-only", *options, text=script)
    try:
        job = _call("sbatch", "--parsable", *options, text=script).split(";")[0].strip()
    except NoAnswer as error:
        raise Unanswered(f"{error}; whether it took the job suite status, collect or submit will find out") from error
    deadline, found = time.monotonic() + REASON_SECONDS, None
    while time.monotonic() < deadline:
        with suppress(UsageError):  # it is in the queue: that the queue is not shown now is no refusal
            found = find(job)
        if found is None or found.state != "PENDING" or found.reason:
            break
        time.sleep(0.2)
    # of one that waits for others Slurm tells no other reason yet
    if found is not None and found.state == "PENDING" and found.reason in NEVER:
        cancel(job)
        raise UsageError(
            f"Slurm can never start this job ({found.reason}): compare --nodes, --gpus-per-node, --timeout and "
            "--allowance with `scontrol show partition`, or name another --partition"
        )
    return job


def find(job: str) -> QueueEntry | None:
    """The job as the queue has it, else as the accounting has it; ``None`` where both do not know it (any more)."""
    return next(reversed(_queued(f"--jobs={job}") or _accounted("-j", job)), None)


def find_by_name(name: str, folder: str, index: int | None) -> QueueEntry | None:
    """The user's own job of that name and working directory, and of that index of an array."""
    jobs = [job for job in _queued("--me", f"--name={name}") if job.folder == folder]
    jobs = jobs or _accounted(f"--name={name}", f"--uid={os.getuid()}", "--starttime=now-30days")
    return next((job for job in reversed(jobs) if index is None or job.job.endswith(f"_{index}")), None)


def is_called(job: str, name: str) -> bool:
    """Whether a job of the queue is the user's own and has that name."""
    return bool(_queued("--me", f"--jobs={job}", f"--name={name}"))


def unfinished(folders: Collection[str]) -> list[str]:
    """The user's own jobs of these working directories that wait or run, oldest first; an array is one job."""
    if shutil.which("sbatch") is None:
        return []  # whoever submits is told
    lines = _call("squeue", "--me", "--noheader", "--format=%F|%Z").splitlines()
    own = {job for job, _, where in (line.strip().partition("|") for line in lines) if where in folders}
    return sorted(own, key=lambda job: int(job) if job.isdecimal() else 0)


def cancel(job: str) -> None:
    """Raises UsageError when Slurm does not know the job or refuses."""
    _call("scancel", job)


def _queued(*which: str) -> list[QueueEntry]:
    try:
        lines = _call("squeue", "--noheader", "--array", "--states=all", f"--format={_FIELDS}", *which).splitlines()
    except UsageError as error:
        if "Invalid job id specified" in str(error):
            return []
        raise
    return [_entry(line) for line in lines]


def _accounted(*which: str) -> list[QueueEntry]:
    """Clusters without accounting, or without this job in it, know nothing more."""
    try:
        lines = _call("sacct", "-X", "-n", "-P", *which, "-o", "JobID,State,Start,End,NodeList,Reason").splitlines()
    except UsageError:
        return []
    return [_entry(line) for line in lines]


def _entry(line: str) -> QueueEntry:
    """Raises UsageError for a line that is none of a job."""
    fields = line.split("|", 6)
    if len(fields) < 6 or not fields[1].strip():
        raise UsageError(f"Slurm's answer is no job: {line[:200]!r}")
    job, state, started, ended, nodes, reason, *folder = fields
    word = state.split()[0]  # sacct: "CANCELLED by 1000"
    return QueueEntry(job, word, _moment(started), _moment(ended), nodes, "" if reason == "None" else reason, *folder)


def _moment(text: str) -> float | None:
    return float(text) if text.isdecimal() and len(text) <= 12 else None


def _call(*command: str, text: str | None = None) -> str:
    """Standard output. Raises UsageError when there is no such command, it fails, or does not answer."""
    # without what describes the allocation that this process runs in: a job would inherit it, and its srun obey it
    own = {name for name in os.environ if "SLURM_JOB_ID" in os.environ and name.startswith("SLURM_")}
    kept = os.environ.keys() - (own - _CLUSTER | _MISLEADING)
    env = {**{name: os.environ[name] for name in kept}, "SLURM_TIME_FORMAT": "%s"}
    try:
        # in a session of its own: a Ctrl-C in this terminal must not end it between the controller and its answer
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, env=env, timeout=ASK_SECONDS, start_new_session=True
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"Slurm did not answer within {ASK_SECONDS:g} s ({command[0]})") from error
    except OSError as error:
        why = f"{command[0]} cannot be run ({error.strerror})"
        raise UsageError(f"there is no Slurm here: {why}; run this on a login node of the cluster") from error
    if done.returncode != 0:
        # what it complained of, in one line without its own name before each
        lines = [line.split("error: ", 1)[-1].strip() for line in done.stderr.splitlines()]
        message = "; ".join(dict.fromkeys(filter(None, lines))) or f"exit code {done.returncode}"
        if done.returncode < 0 or _NO_ANSWER.search(message):
            raise NoAnswer(f"Slurm did not answer ({command[0]}): {message}")
        raise UsageError(f"Slurm refuses ({command[0]}): {message}")
    return done.stdout
