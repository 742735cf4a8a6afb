"""Slurm as a cluster scheduler: where a submitted run is, how to end it, and what it left: each task's lines of the
output after its number, kept to a size, and Slurm's own."""

import re
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from suite.launch.classify import CAUSE, Pattern
from suite.launch.cluster.launcher import Gathered, Phase, SchedulerEnd, SchedulerState, Stream
from suite.launch.cluster.submission import Submission
from suite.launch.job import Job
from suite.launch.outcome import EndStatus, Failure, FailureKind
from suite.launch.processes import signed
from suite.launch.slurm import client
from suite.launch.stream import EVENT_PREFIX, read_on
from suite.launch.traces import FIRST_BYTES, LAST_BYTES, mark
from suite.spec.base import UsageError
from suite.spec.foreign import lines_of, open_plain
from suite.spec.layout import Layout

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
                streams, own, codes = read_output(lines_of(file), layout, starter)
        except FileNotFoundError as error:
            if found is None:
                told = f"{_unknown(submission)}, and there is no output in {path}"
                raise UsageError(f"{submission.run_id}: nothing came back: {told}") from error
            streams, own, codes = read_output((), layout, starter)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        state = found.state if found else None
        why = verdict(own, state, found.reason if found else "")
        status: EndStatus | None = "failed"
        if why is not None and why.kind == "interrupted":
            status = "interrupted"
        elif why is None and state in (None, "COMPLETED"):
            status = "ok" if state else None
        end = SchedulerEnd(
            status=status,
            verdict=why,
            proven=why is not None and why.kind in ("oom_host", "rank_lost"),
            exit_codes=codes,
            started=found.started if found else None,
            ended=found.ended if found else None,
        )
        return Gathered(streams, end, SLURM_PATTERNS)

    def printed(self, submission: Submission, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
        path = _output_path(submission, None if _job(submission) else self._find(submission))
        layout, is_first = submission.manifest.layout, not place
        new = read_on(path, place, lines * (layout.ranks + 1))
        streams, _, _ = read_output(new, layout, submission.fact("starter", str))
        return [(stream.name, [*stream.lines][-lines if is_first else 0 :]) for stream in streams]

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
        folder, index = str(Path(submission.fact("output", str)).parent), submission.fact("index", int, type(None))
        return client.find_by_name(submission.fact("name", str), folder, index)


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
    index = submission.fact("index", int, type(None))
    own = re.compile(name + (r"-\d+" if index is None else rf"-\d+_{index}") + r"\.out")
    return [path for path in Path(submission.fact("output", str)).parent.glob("*.out") if own.fullmatch(path.name)]


def _unknown(submission: Submission) -> str:
    return f"Slurm knows no job {_job(submission) or 'named ' + submission.fact('name', str)} (any more)"


def _job(submission: Submission) -> str | None:
    job: str | None = submission.fact("job", str, type(None))
    if job is not None and not _JOB.fullmatch(job):
        raise UsageError(f"{submission.run_id}: {ascii(job)[:90]} in its submission file is no job of Slurm")
    return job


class Printed:
    """Lines of an output in their order; where some were cut, events that came after the first lines come next."""

    def __init__(self) -> None:
        self._first: list[bytes] = []
        self._events: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._first_bytes = self._last_bytes = self._cut = 0

    def append(self, line: bytes) -> None:
        is_event = EVENT_PREFIX in line
        if self._first_bytes < FIRST_BYTES:
            self._first.append(line)
            self._first_bytes += 0 if is_event else len(line)
        elif is_event:
            self._events.append(line)
        else:
            self._last.append(line)
            self._last_bytes += len(line)
            while self._last_bytes > LAST_BYTES:
                dropped = len(self._last.popleft())
                self._last_bytes -= dropped
                self._cut += dropped

    def __iter__(self) -> Iterator[bytes]:
        yield from self._first
        yield from self._events
        if self._cut:
            yield mark(self._cut)
        yield from self._last


#: srun --label
_LABEL = re.compile(rb"\s*(\d{1,9}): ?")
_ENDED = re.compile(
    r"srun: error: \S+: tasks? ([\d,-]+): (?:Exited with exit code (\d{1,9})|(\w[\w ]*?))(?: \(core dumped\))?$"
)
#: of the list that srun prints, such as 0-2,5
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_SIGNALS = {signal.strsignal(number): -number for number in signal.valid_signals()} | {"Out Of Memory": -9}
_JOB_ENDED = re.compile(r"error: \*\*\* JOB \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+[A-Z]))?")
_OOM = re.compile(r"[Dd]etected \d+ oom.kill event|: Out Of Memory$")
#: Slurm's own watch over memory, on clusters without control groups: it ends the job itself
_OVER_LIMIT = re.compile(r"[Ee]xceeded (?:(?:job|step|virtual) )?memory limit")
#: names the node that was lost; the line of the job's end names the job's first node, whichever was lost
_NODE_LOST = re.compile(r"srun: error: Node failure on \S+")
#: by Slurm's state of the job, and by what the line of its end says that it was due to
_KINDS: dict[str | None, FailureKind] = {
    **dict.fromkeys(("TIMEOUT", "DEADLINE", "TIME LIMIT"), "timeout"),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "NODE FAILURE"), "rank_lost"),
    **dict.fromkeys(("CANCELLED", "PREEMPTED", "REVOKED", "PREEMPTION"), "interrupted"),
    "OUT_OF_MEMORY": "oom_host",
}

#: As Slurm's, pyxis's, enroot's and Apptainer's sources and issue trackers have them; a real Slurm in the tests printed
#: those of srun and env.
SLURM_PATTERNS: tuple[Pattern, ...] = (
    Pattern("oom_host", CAUSE, r"[Dd]etected \d+ oom.kill event"),
    Pattern("oom_host", CAUSE, r"srun: error: \S+: tasks? \S+: Out Of Memory"),
    Pattern("oom_host", CAUSE, _OVER_LIMIT.pattern),
    Pattern("image_missing", CAUSE, r"\[ERROR\] No such file or directory: \S+"),
    Pattern("image_missing", CAUSE, r"FATAL: .{0,1000}could not open image"),
    Pattern("image_pull", CAUSE, r"pyxis: failed to import docker image"),
    Pattern("image_pull", CAUSE, r"\[ERROR\] URL https?://\S+ returned error code: \d+"),
    Pattern("image_pull", CAUSE, r"FATAL: .{0,1000}(making image from oci registry|[Uu]nable to handle \S+ uri)"),
    Pattern("config", CAUSE, r"unrecognized option '--container-image"),
    Pattern("config", CAUSE, r"enroot-switchroot: failed to execute: "),
    Pattern("config", CAUSE, r"^env: .*: (No such file or directory|Permission denied)$", before_start=True),
    Pattern("config", CAUSE, r"line \d+: \S+: command not found", before_start=True),
    Pattern("config", CAUSE, r"srun: error: Unable to create step for job \d+: "),
    Pattern("rank_lost", CAUSE, r"srun: error: Node failure on \S+"),
)


def read_output(
    lines: Iterable[bytes], layout: Layout, starter: str
) -> tuple[tuple[Stream, ...], tuple[str, ...], dict[str, int]]:
    """An output divided by task, with torchrun a node, else a rank; lines of Slurm and of the batch script; exit codes
    (negative: signal) by name of stream, where a task ended badly."""
    kind, width = ("node", layout.devices_per_node) if starter == "torchrun" else ("rank", 1)
    tasks = layout.ranks // width
    by_task = [Printed() for _ in range(tasks)]
    own = Printed()
    for line in lines:
        label = _LABEL.match(line)
        if label and int(label[1]) < tasks:
            by_task[int(label[1])].append(line[label.end() :])
        else:
            own.append(line)
    streams = [
        Stream(f"{kind}-{task}", list(printed), tuple(range(task * width, (task + 1) * width)))
        for task, printed in enumerate(by_task)
    ]
    of_steps = (line for printed in by_task for line in printed if line.startswith(b"slurmstepd"))
    own_lines = tuple(line.decode(errors="replace").rstrip() for line in (*own, *of_steps))
    codes = {f"{kind}-{task}": code for task, code in _exit_codes(own_lines, tasks).items()}
    return (*streams, Stream("slurm", list(own))), own_lines, codes


def verdict(own_lines: Sequence[str], word: str | None, reason: str) -> Failure | None:
    """Why Slurm itself ended the job, by its state and its own lines; ``None`` where the job ended by itself."""
    over = [line for line in own_lines if _OVER_LIMIT.search(line)]
    # its state is CANCELLED or FAILED then; that the limit was met at some point proves it only beside a killed task
    killed = any(line.startswith("srun: error: ") and ": Killed" in line for line in own_lines)
    if word == "COMPLETED" or not (killed or any("at some point" not in line for line in over)):
        over = []
    lines = [*over, *(line for line in own_lines if _JOB_ENDED.search(line) or _OOM.search(line))]
    ended = next(filter(None, map(_JOB_ENDED.search, lines)), None)
    said: FailureKind | None = "oom_host" if lines else None
    if ended is not None:
        said = _KINDS.get(ended[1], "interrupted")
    kind = "oom_host" if over else _KINDS.get(word, said)
    if kind is None:
        return None
    lost = [line for line in own_lines if _NODE_LOST.search(line)]
    if kind == "rank_lost" and lost:
        lines = [*lost, *(line for line in lines if not _JOB_ENDED.search(line))]
    state = f"Slurm's state of the job: {word}" + (f" ({reason})" if reason else "")
    return Failure(kind=kind, evidence=(*([state] if word else []), *lines))


def _exit_codes(own_lines: Iterable[str], tasks: int) -> dict[int, int]:
    """Task -> exit code as srun reports it; first to end first."""
    codes: dict[int, int] = {}
    for ended in filter(None, map(_ENDED.search, own_lines)):
        code = int(ended[2]) if ended[2] else _SIGNALS.get(ended[3])
        if code is not None:
            for first, last in _TASKS.findall(ended[1]):  # as far as there are so many
                for task in range(int(first), min(int(last or first) + 1, tasks)):
                    codes.setdefault(task, signed(code))
    return codes
