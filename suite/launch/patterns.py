"""Lines of logs that say why a rank ended, as data: a launcher adds its own by ``(*PATTERNS, ...)``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from suite.launch.outcome import FailureKind

#: ``cause``: explains the run's end by itself. ``symptom``: a collective did not finish, explains it if nothing better
#: is known. ``consequence``: another rank had gone before.
Role = Literal["cause", "symptom", "consequence"]
ROLES: tuple[Role, ...] = ("cause", "symptom", "consequence")


class Pattern(NamedTuple):
    """A regular expression that is searched in each line of a failed rank's log."""

    kind: FailureKind
    role: Role
    expression: str
    before_start: bool = False  # proves its kind only in a rank that has not written its start event


#: Texts of CPython, torch, gloo, NCCL, the CUDA runtime, its driver and the C library, as they print them.
PATTERNS: tuple[Pattern, ...] = (
    Pattern("oom_device", "cause", r"(CUDA|HIP) out of memory"),
    Pattern("oom_device", "cause", r"CUDA (driver )?[Ee]rror: out of memory"),
    Pattern("oom_device", "cause", r"Cuda failure (\d+ )?'out of memory'"),
    Pattern("oom_device", "cause", r"CU[A-Z]{2,20}_STATUS_ALLOC_FAILED"),
    Pattern("oom_device", "cause", r"No available memory for the cache blocks"),
    # what a rank may lock, not what the host has; before the pattern of host memory, whose words it shares
    Pattern("config", "cause", r"\bibv_\w{1,40} .{0,300}Cannot allocate memory"),
    Pattern("oom_host", "cause", r"^([\w.]+\.)?(_Array)?MemoryError\b"),
    Pattern("oom_host", "cause", r"std::bad_alloc"),
    Pattern("oom_host", "cause", r"DefaultCPUAllocator: (can't allocate|not enough) memory"),
    Pattern("oom_host", "cause", r"[Cc]annot allocate memory"),
    Pattern("oom_host", "cause", r"libgomp: Out of memory"),
    Pattern("oom_host", "cause", r"node running low on memory"),
    Pattern("disk_full", "cause", r"No space left on device|Disk quota exceeded"),
    Pattern("disk_full", "cause", r"bus error .{0,300}insufficient shared memory"),
    Pattern("config", "cause", r"\bFile too large\b"),
    Pattern("config", "cause", r"[Gg]ated ?[Rr]epo|\b401 Client Error"),
    Pattern("port_taken", "cause", r"server socket has failed to listen on any local network address"),
    Pattern("port_taken", "cause", r"\bEADDRINUSE\b"),
    Pattern("port_taken", "cause", r"\[Errno 98\] (error while attempting to bind|Address already in use)"),
    Pattern("driver_mismatch", "cause", r"NVIDIA driver on your system is too old"),
    Pattern("driver_mismatch", "cause", r"CUDA driver version is insufficient for CUDA runtime version"),
    Pattern("driver_mismatch", "cause", r"forward compatibility was attempted on non supported HW"),
    Pattern("driver_mismatch", "cause", r"unsupported display driver / cuda driver combination"),
    Pattern("driver_mismatch", "cause", r"Driver/library version mismatch"),
    Pattern("driver_mismatch", "cause", r"no kernel image is available for execution on the device"),
    Pattern("gpu_unavailable", "cause", r"Found no NVIDIA driver on your system"),
    Pattern("gpu_unavailable", "cause", r"No CUDA GPUs are available"),
    Pattern("gpu_unavailable", "cause", r"no CUDA-capable device is detected"),
    Pattern("gpu_unavailable", "cause", r"CUDA-capable device\(s\) is/are busy or unavailable"),
    Pattern("gpu_unavailable", "cause", r"CUDA error: invalid device ordinal"),
    Pattern("gpu_unavailable", "cause", r"uncorrectable (ECC|NVLink) error"),
    Pattern("gpu_unavailable", "cause", r"GPU is lost|GPU has fallen off the bus|\bXid\b.{0,40}\b79\b"),
    Pattern("gpu_unavailable", "cause", r"system not yet initialized"),
    Pattern("gpu_unavailable", "cause", r"Torch not compiled with CUDA enabled"),
    Pattern("config", "cause", r"^ModuleNotFoundError: ", before_start=True),
    Pattern("config", "cause", r"^ImportError: ", before_start=True),
    Pattern("config", "cause", r": No module named ", before_start=True),
    Pattern("config", "cause", r"can't open file '[^']*': \[Errno 2\]", before_start=True),
    Pattern("config", "cause", r"error while loading shared libraries: ", before_start=True),
    Pattern("nccl_timeout", "symptom", r"Watchdog caught collective operation timeout"),
    Pattern("nccl_timeout", "symptom", r"Some NCCL operations have failed or timed out"),
    Pattern("nccl_timeout", "symptom", r"Timed out after \d+ seconds waiting for clients|wait timeout after \d+ ?ms"),
    Pattern("nccl_timeout", "symptom", r"client socket has (timed out|failed to connect)|\bSocket Timeout\b"),
    Pattern("hang", "symptom", r"Timed out waiting \d+ms for (recv|send) operation to complete"),
    Pattern("rank_lost", "consequence", r"Connection (closed|reset) by peer"),
    Pattern("rank_lost", "consequence", r"Application timeout caused pair closure"),
    Pattern("rank_lost", "consequence", r"Broken pipe"),
    Pattern("rank_lost", "consequence", r"Connection was likely closed"),
    Pattern("rank_lost", "consequence", r"[Cc]onnection closed by remote peer"),
    Pattern("rank_lost", "consequence", r"remote process exit(ing|ed)"),
    Pattern("rank_lost", "consequence", r"NCCL communicator was aborted"),
    Pattern("rank_lost", "consequence", r"Gloo connectFullMesh failed"),
)

#: libraries say much of the above also of what they get over, e.g. of an old driver in a run that never asks for a GPU
_PASSING = re.compile(r"Warning\b|(?<![=\w])(DEBUG|INFO|WARNING)\b")
#: torch puts the rank before each line of an uncaught exception
_RANK_PREFIX = re.compile(r"^\[rank\d+\]:\s?")


class Match(NamedTuple):
    """The first line with the strongest role that was found."""

    pattern: Pattern
    line: str


def strongest(lines: Iterable[str], patterns: tuple[Pattern, ...], started: bool) -> Match | None:
    """The earliest cause in the lines, else the earliest symptom, else the earliest consequence, else ``None``."""
    found: Match | None = None
    for line in lines:
        if _PASSING.search(line):
            continue
        bare = _RANK_PREFIX.sub("", line)
        for pattern in patterns:
            if _tells_more(pattern, found, started) and re.search(pattern.expression, bare):
                found = Match(pattern, line)
    return found


def _tells_more(pattern: Pattern, found: Match | None, started: bool) -> bool:
    if pattern.before_start and started:
        return False
    return found is None or ROLES.index(pattern.role) < ROLES.index(found.pattern.role)
