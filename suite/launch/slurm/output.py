"""What a job's output holds: each task's lines after its number, kept to a size, and Slurm's own. Pure."""

import re
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from suite.launch.classify import CAUSE, Pattern
from suite.launch.cluster.launcher import Stream
from suite.launch.outcome import Failure, FailureKind
from suite.launch.processes import signed
from suite.launch.stream import EVENT_PREFIX
from suite.launch.traces import FIRST_BYTES, LAST_BYTES, mark
from suite.spec.layout import Layout


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
OWN_STREAM = "slurm"


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


class Output(NamedTuple):
    """A job's output, divided by task."""

    streams: tuple[Stream, ...]
    own: tuple[str, ...]  # Slurm's and the batch script's lines
    exit_codes: dict[str, int]  # by name of stream, where a task ended badly; negative: signal


def read_output(lines: Iterable[bytes], layout: Layout, starter: str) -> Output:
    """Divide the lines by task. With torchrun a task is a node, else a rank."""
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
    return Output((*streams, Stream(OWN_STREAM, list(own))), own_lines, codes)


def verdict(own_lines: Sequence[str], word: str | None, reason: str) -> Failure | None:
    """Why Slurm itself ended the job, by its state and its own lines; ``None`` where the job ended by itself."""
    over = _over_limit(own_lines) if word != "COMPLETED" else []
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


def _over_limit(own_lines: Sequence[str]) -> list[str]:
    """The lines by which Slurm ended the job for its memory; its state is CANCELLED or FAILED then, as if somebody had
    asked for it. That the limit was met "at some point" proves it only beside a task that was killed."""
    over = [line for line in own_lines if _OVER_LIMIT.search(line)]
    killed = any(line.startswith("srun: error: ") and ": Killed" in line for line in own_lines)
    return over if killed or any("at some point" not in line for line in over) else []


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
