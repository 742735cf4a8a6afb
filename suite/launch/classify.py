"""Why a run failed: from what the ranks reported, how they ended, what the driver saw, and lines of logs. Pure."""

import re
import signal
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from suite.launch.outcome import Failure, FailureKind
from suite.launch.processes import OomKills


class Strength(IntEnum):
    """How well a finding explains the whole run's end; within one strength the earliest counts."""

    CAUSE = 0  # by itself
    RAISED = 1  # a rank raised something that fits no pattern
    SYMPTOM = 2  # a collective did not finish: if nothing better is known
    VERDICT = 3
    SILENT = 4  # a rank ended with an exit code and no word
    CONSEQUENCE = 5  # another rank had gone before


CAUSE, SYMPTOM, CONSEQUENCE = Strength.CAUSE, Strength.SYMPTOM, Strength.CONSEQUENCE


class Pattern(NamedTuple):
    """A regular expression that is searched in each line of a failed rank's log."""

    kind: FailureKind
    strength: Strength
    expression: str
    before_start: bool = False  # proves its kind only in a rank that has not written its start event


#: Texts of CPython, torch, gloo, NCCL, the CUDA runtime, its driver and the C library; a launcher adds its own.
PATTERNS: tuple[Pattern, ...] = (
    Pattern("oom_device", CAUSE, r"(CUDA|HIP) out of memory|CUDA (driver )?[Ee]rror: out of memory"),
    Pattern("oom_device", CAUSE, r"Cuda failure (\d+ )?'out of memory'|CU[A-Z]{2,20}_STATUS_ALLOC_FAILED"),
    Pattern("oom_device", CAUSE, r"No available memory for the cache blocks"),
    # what a rank may lock, not what the host has; before the pattern of host memory, whose words it shares
    Pattern("config", CAUSE, r"\bibv_\w{1,40} .{0,300}Cannot allocate memory"),
    Pattern("oom_host", CAUSE, r"^([\w.]+\.)?(_Array)?MemoryError\b|std::bad_alloc|libgomp: Out of memory"),
    Pattern("oom_host", CAUSE, r"[Cc]annot allocate memory|DefaultCPUAllocator: (can't allocate|not enough) memory"),
    Pattern("oom_host", CAUSE, r"node running low on memory"),
    Pattern("disk_full", CAUSE, r"No space left on device|Disk quota exceeded"),
    Pattern("disk_full", CAUSE, r"bus error .{0,300}insufficient shared memory"),
    Pattern("config", CAUSE, r"\bFile too large\b"),
    Pattern("config", CAUSE, r"[Gg]ated ?[Rr]epo|\b401 Client Error"),
    Pattern("port_taken", CAUSE, r"server socket has failed to listen on any local network address|\bEADDRINUSE\b"),
    Pattern("port_taken", CAUSE, r"\[Errno 98\] (error while attempting to bind|Address already in use)"),
    Pattern("driver_mismatch", CAUSE, r"NVIDIA driver on your system is too old"),
    Pattern("driver_mismatch", CAUSE, r"CUDA driver version is insufficient for CUDA runtime version"),
    Pattern("driver_mismatch", CAUSE, r"forward compatibility was attempted on non supported HW"),
    Pattern("driver_mismatch", CAUSE, r"unsupported display driver / cuda driver combination"),
    Pattern("driver_mismatch", CAUSE, r"Driver/library version mismatch"),
    Pattern("driver_mismatch", CAUSE, r"no kernel image is available for execution on the device"),
    Pattern("gpu_unavailable", CAUSE, r"Found no NVIDIA driver on your system|No CUDA GPUs are available"),
    Pattern("gpu_unavailable", CAUSE, r"no CUDA-capable device is detected|CUDA error: invalid device ordinal"),
    Pattern("gpu_unavailable", CAUSE, r"CUDA-capable device\(s\) is/are busy or unavailable"),
    Pattern("gpu_unavailable", CAUSE, r"uncorrectable (ECC|NVLink) error"),
    Pattern("gpu_unavailable", CAUSE, r"GPU is lost|GPU has fallen off the bus|\bXid\b.{0,40}\b79\b"),
    Pattern("gpu_unavailable", CAUSE, r"system not yet initialized|Torch not compiled with CUDA enabled"),
    Pattern("config", CAUSE, r"^(ModuleNotFound|Import)Error: |: No module named ", before_start=True),
    Pattern("config", CAUSE, r"can't open file '[^']*': \[Errno 2\]", before_start=True),
    Pattern("config", CAUSE, r"error while loading shared libraries: ", before_start=True),
    Pattern("nccl_timeout", SYMPTOM, r"Watchdog caught collective operation timeout"),
    Pattern("nccl_timeout", SYMPTOM, r"Some NCCL operations have failed or timed out"),
    Pattern("nccl_timeout", SYMPTOM, r"Timed out after \d+ seconds waiting for clients|wait timeout after \d+ ?ms"),
    Pattern("nccl_timeout", SYMPTOM, r"client socket has (timed out|failed to connect)|\bSocket Timeout\b"),
    Pattern("hang", SYMPTOM, r"Timed out waiting \d+ms for (recv|send) operation to complete"),
    Pattern("rank_lost", CONSEQUENCE, r"Connection (closed|reset) by peer|[Cc]onnection closed by remote peer"),
    Pattern("rank_lost", CONSEQUENCE, r"Broken pipe|Connection was likely closed|remote process exit(ing|ed)"),
    Pattern("rank_lost", CONSEQUENCE, r"Application timeout caused pair closure|Gloo connectFullMesh failed"),
    Pattern("rank_lost", CONSEQUENCE, r"NCCL communicator was aborted"),
)

#: libraries say much of the above also of what they get over, e.g. of an old driver in a run that never asks for a GPU
_PASSING = re.compile(r"Warning\b|(?<![=\w])(DEBUG|INFO|WARNING)\b")
#: torch puts the rank before each line of an uncaught exception
_RANK_PREFIX = re.compile(r"^\[rank\d+\]:\s?")


def strongest(lines: Iterable[str], patterns: tuple[Pattern, ...], started: bool) -> tuple[Pattern, str] | None:
    """The earliest cause and its line, else the earliest symptom, else the earliest consequence, else ``None``."""
    fitting = [pattern for pattern in patterns if not (pattern.before_start and started)]
    found: tuple[Pattern, str] | None = None
    for line in lines:
        bare = "" if _PASSING.search(line) else _RANK_PREFIX.sub("", line)
        for pattern in fitting:
            tells_more = found is None or pattern.strength < found[0].strength
            if tells_more and re.search(pattern.expression, bare):
                found = pattern, line
    return found


class Report(NamedTuple):
    """A failure event of a rank: its own word, at its own time (Unix seconds)."""

    time: float
    failure: Failure


class RankEnd(NamedTuple):
    """What is known of one rank's end."""

    rank: int
    exit_code: int | None  # negative: signal; None: not known
    ended_at: float | None  # Unix seconds; None when the driver ended it, so that the code means nothing
    started: bool  # whether its start event was written
    reports: tuple[Report, ...] = ()
    log: tuple[str, ...] = ()  # the last lines of its standard output and error
    called: str | None = None  # a node's log, which may be any of its ranks'; None: it is this rank's own

    @property
    def name(self) -> str:
        return self.called or f"rank {self.rank}"


class RunEnd(NamedTuple):
    """What is known of the end of all ranks of one node or run."""

    ranks: tuple[RankEnd, ...]
    verdict: Failure | None = None  # why the driver itself stopped the run: time-out, hang, disk full
    proven: bool = False  # the verdict is a cause by itself, such as a kill for want of memory
    stopped_at: float | None = None  # when the driver began to end ranks; what they say afterwards is its doing
    oom_kills: OomKills | None = None  # by how much the kernel's counter of them rose during the run
    phase: str | None = None  # the last that rank 0 reported
    iteration: int | None = None


_STRENGTH_OF_KIND: dict[FailureKind, Strength] = {
    "unknown": Strength.RAISED,
    "nccl_timeout": SYMPTOM,
    "hang": SYMPTOM,
    "rank_lost": CONSEQUENCE,
}


#: how well it explains the end, when it was (Unix seconds), the rank, and what it was
Finding = tuple[Strength, float, int, Failure]


def classify(end: RunEnd, patterns: tuple[Pattern, ...] = PATTERNS) -> Failure:
    """The root cause of a failed run: the strongest finding, and of equally strong ones the earliest. What neighbours
    of a rank that ended report, a closed connection or a time-out, is named only where no cause is known."""
    findings = [finding for rank in end.ranks for finding in _of_rank(rank, end, patterns)]
    if end.verdict is not None:
        findings.append((CAUSE if end.proven else Strength.VERDICT, 0.0, -1, end.verdict))
    if not findings:
        return _failure(end, "unknown", "no rank told why the run ended")
    return min(findings, key=lambda finding: finding[:3])[3]


def _of_rank(rank: RankEnd, end: RunEnd, patterns: tuple[Pattern, ...]) -> Iterator[Finding]:
    reported = [report for report in rank.reports if end.stopped_at is None or report.time <= end.stopped_at]
    for report in reported:  # its own word; where it could not name a kind, its lines may
        failure = report.failure
        evidence = tuple(f"rank {rank.rank}: {line}" for line in failure.evidence)
        kind, strength = failure.kind, _STRENGTH_OF_KIND.get(failure.kind, CAUSE)
        match = None if strength is CAUSE else strongest(failure.evidence, patterns, rank.started)
        if match:
            kind, strength = match[0].kind, match[0].strength
        phase, iteration = (end.phase, end.iteration) if failure.phase is None else (failure.phase, failure.iteration)
        whole = Failure(kind=kind, phase=phase, iteration=iteration, evidence=evidence)
        yield strength, report.time, rank.rank, whole
    if not reported and rank.ended_at is not None and rank.exit_code != 0:
        strength, kind, evidence = _ended(rank, end.oom_kills, patterns)
        yield strength, rank.ended_at, rank.rank, _failure(end, kind, *evidence)


def _ended(
    rank: RankEnd, kills: OomKills | None, patterns: tuple[Pattern, ...]
) -> tuple[Strength, FailureKind, tuple[str, ...]]:
    """A rank that ended badly by itself, or nobody knows how, without a failure event: log and exit code must tell."""
    code = rank.exit_code
    pattern, line = strongest(rank.log, patterns, rank.started) or (None, "")
    # a process aborts by its own doing, and has said why before
    lost = code is not None and code < 0 and code != -signal.SIGABRT
    ending = f"{rank.name} ended {how(code)}"
    if pattern and (pattern.strength is CAUSE or not lost):
        return pattern.strength, pattern.kind, (f"{rank.name}: {line}", ending)
    if code == -signal.SIGKILL and kills and kills.kills > 0:
        counter = f"the kernel's count of out-of-memory kills ({kills.counter}) rose by {kills.kills}"
        return CAUSE, "oom_host", (ending, counter)
    if code == -signal.SIGXFSZ:
        return CAUSE, "config", (ending, "a file that it wrote has the size that its shell allows: raise ulimit -f")
    last = tuple(f"{rank.name}: {each}" for each in rank.log[-12:])
    return (CAUSE, "rank_lost", (ending, *last)) if lost else (Strength.SILENT, "unknown", (ending, *last))


def how(exit_code: int | None) -> str:
    """``by SIGKILL``, ``by signal 99``, ``with exit code 1``, or that it is not known."""
    if exit_code is None:
        return "in a way that is not known"
    if exit_code >= 0:
        return f"with exit code {exit_code}"
    try:
        return f"by {signal.Signals(-exit_code).name}"
    except ValueError:  # the system has no name for it
        return f"by signal {-exit_code}"


def _failure(end: RunEnd, kind: FailureKind, *evidence: str) -> Failure:
    return Failure(kind=kind, phase=end.phase, iteration=end.iteration, evidence=evidence)
