"""What container runtimes and their hooks say when a container does not start or does not live, as data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from suite.launch.outcome import Failure
from suite.launch.patterns import Pattern

REFUSED_LIMIT = (
    "the runtime may not raise this limit: take one that it may (--ulimit memlock=8388608), or give the runtime "
    "CAP_SYS_RESOURCE"
)
NO_RUNTIME = "install NVIDIA's container toolkit on the runtime's host, or use its CDI devices (--gpu-access cdi)"
NO_CDI = "turn CDI on in the runtime's daemon.json (features.cdi) and describe the GPUs (nvidia-ctk cdi generate)"
OTHER_IMAGE = "the image lacks the suite: build it with `suite images build`, or derive it from one that was"


_HANDED_ON = re.compile(
    r"^.*(failed to create shim task|OCI runtime create failed|runc create failed|unable to start container process|"
    r"error during container init|error running hook|, stderr): "
)


class RuntimePattern(NamedTuple):
    """A pattern, and the next step where its kind's own would send a user astray."""

    pattern: Pattern
    advice: str | None = None


def _cause(kind: str, expression: str, advice: str | None = None) -> RuntimePattern:
    return RuntimePattern(Pattern(kind, "cause", expression), advice)  # type: ignore[arg-type]


#: Texts of dockerd, Podman, containerd, runc, crun, tini and NVIDIA's hook; of several that fit the first counts.
RUNTIME_PATTERNS: tuple[RuntimePattern, ...] = (
    _cause("image_missing", r"[Nn]o such image"),
    _cause(
        "image_pull",
        r"pull access denied|toomanyrequests|manifest .{0,500}(unknown|not found)|failed to resolve reference",
    ),
    _cause("image_pull", r"Error response from daemon: Get \"https?://|no basic auth credentials|unauthorized: "),
    _cause("driver_mismatch", r"unsatisfied condition: "),
    _cause("driver_mismatch", r"nvidia-container-cli: requirement error"),
    _cause("driver_mismatch", r"driver/library version mismatch"),
    _cause("driver_mismatch", r"forward compatibility was attempted on non supported HW"),
    _cause("gpu_unavailable", r"could not select device driver \"cdi\"", NO_CDI),
    _cause("gpu_unavailable", r"could not select device driver", NO_RUNTIME),
    _cause("gpu_unavailable", r"[Uu]nknown runtime specified nvidia", NO_RUNTIME),
    _cause("gpu_unavailable", r"CDI device injection failed|unresolvable CDI devices"),
    _cause("gpu_unavailable", r"nvidia-container-cli: (device error|.{0,500}unknown device)"),
    _cause("gpu_unavailable", r"nvidia-container-cli: (initialization|detection|mount) error"),
    _cause("gpu_unavailable", r"error gathering device information while adding custom device \"/dev/nvidia"),
    _cause("oom_host", r"container init was OOM-killed"),
    _cause("disk_full", r"no space left on device|disk quota exceeded"),
    _cause("config", r"setting rlimit|set(ting)? rlimits|setrlimit `RLIMIT", REFUSED_LIMIT),
    _cause("config", r"[Ee]xec format error", "the image is of another architecture than this host: build it here"),
    _cause(
        "config",
        r"(FATAL tini .{0,1000}|exec:? .{0,1000})(No such file|no such file|executable file not found)",
        OTHER_IMAGE,
    ),
    _cause("config", r"No module named '?suite", OTHER_IMAGE),
    _cause(
        "config",
        r"bind source path does not exist",
        "the runtime does not see this folder: it runs on another machine; use --copy-back",
    ),
    _cause("config", r"[Rr]equested CPUs are not available", "choose CPUs that the runtime's host has, with --cpuset"),
    _cause(
        "config", r"network \S+ not found|unable to find network", "name a network that the runtime has, with --network"
    ),
    _cause("config", r"unknown ulimit|invalid ulimit|ulimit .{0,200} is not valid"),
    _cause("config", r"[Mm]inimum memory limit allowed", "allow a rank more host memory, with --memory"),
)


def runtime_failure(*lines: str) -> Failure | None:
    """The failure that the lines prove, with their next step as its last line; None where nothing known fits."""
    for line in lines:
        for entry in RUNTIME_PATTERNS:
            if re.search(entry.pattern.expression, line):
                advice = () if entry.advice is None else (f"next step: {entry.advice}",)
                return Failure(kind=entry.pattern.kind, evidence=(essence(line), *advice))
    return None


def essence(text: str) -> str:
    """A container runtime's error in one line, without the names of the programs that handed it on."""
    return _HANDED_ON.sub("", " ".join(text.split())).removesuffix(": unknown")


def reason_of(error: BaseException) -> str:
    """Why a runtime was not reached, in words: its client wraps what the system said into exceptions in tuples."""
    wrapped = list(_wrapped(error))
    for each in reversed(wrapped):
        if isinstance(each, OSError) and each.strerror:
            return each.strerror.lower()
    told = [text for each in wrapped if len(each.args) == 1 and isinstance(text := each.args[0], str) and text]
    return " ".join(told[-1].split())[:200] if told else type(error).__name__


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those among its arguments, the innermost last."""
    yield error
    for each in error.args:
        if isinstance(each, BaseException):
            yield from _wrapped(each)
