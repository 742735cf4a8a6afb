"""How a container's run ended, from its node's report, the container runtime's and what the driver did. Pure."""

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from suite.launch.outcome import Failure, FailureKind, Outcome

REFUSED_LIMIT = "take a limit that the runtime may set (--ulimit memlock=8388608), or give it CAP_SYS_RESOURCE"
NO_RUNTIME = "install NVIDIA's container toolkit on the runtime's host, or use its CDI devices (--gpu-access cdi)"
NO_CDI = "turn CDI on in the runtime's daemon.json (features.cdi) and describe the GPUs (nvidia-ctk cdi generate)"
NO_FOLDER = "the runtime does not see this folder: it runs on another machine; use --copy-back"
OTHER_IMAGE = "the image lacks the suite: build it with `suite images build`, or derive it from one that was"

_HANDED_ON = re.compile(
    r"^.*(failed to create shim task|OCI runtime create failed|runc create failed|unable to start container process|"
    r"error during container init|error running hook|, stderr): "
)


class Proof(NamedTuple):
    """Words of a runtime that prove a kind, and the next step where the kind's own would send a user astray."""

    kind: FailureKind
    expression: str
    advice: str | None = None


#: Texts of dockerd, Podman, containerd, runc, crun, tini and NVIDIA's hook; of several that fit the first counts.
RUNTIME_PATTERNS: tuple[Proof, ...] = (
    Proof("image_missing", r"[Nn]o such image"),
    Proof(
        "image_pull",
        r"pull access denied|toomanyrequests|manifest .{0,500}(unknown|not found)|failed to resolve reference",
    ),
    Proof("image_pull", r"Error response from daemon: Get \"https?://|no basic auth credentials|unauthorized: "),
    Proof("driver_mismatch", r"unsatisfied condition: "),
    Proof("driver_mismatch", r"nvidia-container-cli: requirement error"),
    Proof("driver_mismatch", r"driver/library version mismatch"),
    Proof("driver_mismatch", r"forward compatibility was attempted on non supported HW"),
    Proof("gpu_unavailable", r"could not select device driver \"cdi\"", NO_CDI),
    Proof("gpu_unavailable", r"could not select device driver", NO_RUNTIME),
    Proof("gpu_unavailable", r"[Uu]nknown runtime specified nvidia", NO_RUNTIME),
    Proof("gpu_unavailable", r"CDI device injection failed|unresolvable CDI devices"),
    Proof("gpu_unavailable", r"nvidia-container-cli: (device error|.{0,500}unknown device)"),
    Proof("gpu_unavailable", r"nvidia-container-cli: (initialization|detection|mount) error"),
    Proof("gpu_unavailable", r"error gathering device information while adding custom device \"/dev/nvidia"),
    Proof("oom_host", r"container init was OOM-killed"),
    Proof("disk_full", r"no space left on device|disk quota exceeded"),
    Proof("config", r"setting rlimit|set(ting)? rlimits|setrlimit `RLIMIT", REFUSED_LIMIT),
    Proof("config", r"[Ee]xec format error", "the image is of another architecture than this host: build it here"),
    Proof("config", r"(FATAL tini|exec:?) .{0,1000}([Nn]o such file|executable file not found)", OTHER_IMAGE),
    Proof("config", r"No module named '?suite", OTHER_IMAGE),
    Proof("config", r"bind source path does not exist", NO_FOLDER),
    Proof("config", r"[Rr]equested CPUs are not available", "choose CPUs that the runtime's host has, with --cpuset"),
    Proof("config", r"network \S+ not found|unable to find network", "name one that the runtime has, with --network"),
    Proof("config", r"unknown ulimit|invalid ulimit|ulimit .{0,200} is not valid"),
    Proof("config", r"[Mm]inimum memory limit allowed", "allow a rank more host memory, with --memory"),
)


def runtime_failure(*lines: str) -> Failure | None:
    """The failure that the lines prove, with their next step as its last line; None where nothing known fits."""
    for line in lines:
        for entry in RUNTIME_PATTERNS:
            if re.search(entry.expression, line):
                advice = () if entry.advice is None else (f"next step: {entry.advice}",)
                return Failure(kind=entry.kind, evidence=(essence(line), *advice))
    return None


def told(error: Exception) -> str:
    """One line: the runtime's own words, and what to do where they are known."""
    words = str(getattr(error, "explanation", None) or error)
    known = runtime_failure(words)
    return "; ".join(known.evidence) if known else essence(words)


def essence(text: str) -> str:
    """A container runtime's error in one line, without the names of the programs that handed it on."""
    return _HANDED_ON.sub("", " ".join(text.split())).removesuffix(": unknown")


def reason_of(error: BaseException) -> str:
    """Why a runtime was not reached, in words: its client wraps what the system said into exceptions in others."""
    while inner := [each for each in (error.__cause__, *error.args) if isinstance(each, BaseException)]:
        error = inner[-1]
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        words = error.strerror.lower() + (f": {error.filename}" if error.filename else "")
    return " ".join(words.split())[:200] or type(error).__name__


#: What the node may take for the reason where the kernel killed a process: it cannot ask about its own container.
_OVERRULED_BY_OOM: tuple[FailureKind, ...] = ("rank_lost", "unknown", "hang", "nccl_timeout", "timeout")


@dataclass
class ContainerEnd:
    """What is known of the end of one container, as it becomes known."""

    ranks: int
    elapsed_seconds: float = 0.0
    outcome: Outcome | None = None  # the node's own word
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""  # the container runtime's, e.g. why it could not start the program
    gone: str | None = None  # how the container or the runtime was lost
    trouble: list[str] = field(default_factory=list)  # what the runtime did meanwhile
    verdict: Failure | None = None  # why the driver ended it
    interrupted_by: str | None = None
    tail: tuple[str, ...] = ()  # last lines of the container's own log
    phase: str | None = None
    iteration: int | None = None


def conclude(end: ContainerEnd) -> Outcome:
    """The user's stop counts first, then the driver's verdict, the kernel's, the node's word, and the rest."""
    if end.interrupted_by is not None:
        return _outcome(end, "interrupted", _failure(end, "interrupted", f"the driver was sent {end.interrupted_by}"))
    if end.verdict is not None:
        return _outcome(end, "failed", end.verdict)
    if end.outcome is None and end.exit_code == 0 and end.trouble and end.gone is None and not end.oom_killed:
        # the node's report went with the connection, its exit code did not: 0 is what it ends with where all is well
        return Outcome(status="ok", exit_codes=dict.fromkeys(range(end.ranks), 0), elapsed_seconds=end.elapsed_seconds)
    if end.outcome is None:
        return _outcome(end, "failed", _silent(end))
    failure = end.outcome.failure
    evidence = failure.evidence if failure else ("every rank ended with exit code 0",)
    if end.oom_killed and (failure is None or failure.kind in _OVERRULED_BY_OOM):
        line = "the kernel killed a process of the container for want of memory (OOMKilled)"
        return _outcome(end, "failed", _failure(end, "oom_host", line, *evidence))
    if end.outcome.status == "interrupted":
        sent = next((line.rpartition(" ")[2] for line in evidence if "was sent" in line), "a stop signal")
        line = f"the container was sent {sent}, and not by this driver"
        return _outcome(end, "failed", _failure(end, "rank_lost", line, *end.trouble))
    return end.outcome


def _silent(end: ContainerEnd) -> Failure:
    """The node reported no end."""
    if end.gone is not None:
        return _failure(end, "rank_lost", end.gone, *end.trouble)
    if end.oom_killed:
        return _failure(end, "oom_host", f"the container ended with exit code {end.exit_code} and OOMKilled")
    proven = runtime_failure(*filter(None, [end.error]), *end.tail)
    if proven is not None:
        return _failure(end, proven.kind, *proven.evidence)
    if end.exit_code in (137, 143):  # by SIGKILL, SIGTERM
        word = f"the container was killed from outside (exit code {end.exit_code}, OOMKilled false)"
        return _failure(end, "rank_lost", word, *end.trouble)
    if end.exit_code == 255 and end.trouble:  # as dockerd says of what it did not see
        return _failure(end, "rank_lost", "the container ended while its runtime was away", *end.trouble)
    word = f"the container ended with exit code {end.exit_code} before its node reported how the run ended"
    return _failure(end, "unknown", word, *filter(None, [end.error]), *end.trouble, *end.tail[-12:])


def _outcome(end: ContainerEnd, status: Literal["failed", "interrupted"], failure: Failure) -> Outcome:
    codes = end.outcome.exit_codes if end.outcome else dict.fromkeys(range(end.ranks))
    return Outcome(status=status, exit_codes=codes, elapsed_seconds=end.elapsed_seconds, failure=failure)


def _failure(end: ContainerEnd, kind: FailureKind, *evidence: str) -> Failure:
    """Phase and iteration as the node reports them, else as the driver last saw them."""
    known = end.outcome.failure if end.outcome else None
    phase, iteration = (known.phase, known.iteration) if known and known.phase else (end.phase, end.iteration)
    return Failure(kind=kind, phase=phase, iteration=iteration, evidence=evidence)
