"""From an exception to a failure kind of docs/contracts.md, with the lines that prove it."""

import errno
import os
import shutil
import sys
import tempfile
from typing import List

from suite.worker.devices import DeviceError
from suite.worker.rank import ConfigError
from suite.worker.turns import DriverGoneError

#: (kind, what the message of a RuntimeError or ValueError says), the first that fits counts
_MESSAGES = (
    ("oom_device", ("CUDA out of memory", "CUDA error: out of memory", "CUDA Error: out of memory")),
    ("oom_device", ("CUDA driver error: out of memory", "_STATUS_ALLOC_FAILED", "for the cache blocks")),
    ("oom_host", ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")),
    ("port_taken", ("EADDRINUSE", "ddress already in use")),
    ("driver_mismatch", ("NVIDIA driver on your system is too old", "CUDA driver version is insufficient")),
    ("gpu_unavailable", ("Found no NVIDIA driver", "No CUDA GPUs are available")),
    ("gpu_unavailable", ("not compiled with CUDA", "invalid device ordinal")),
    ("rank_lost", ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")),
    ("nccl_timeout", ("Timed out waiting", "collective operation timeout", "Socket Timeout")),
    ("nccl_timeout", ("timed out after", "wait timeout")),
)
_EVIDENCE_LINES = 6
_SHARED_MEMORY = "/dev/shm"


def failure_kind(error: BaseException, phase: str) -> str:
    """The failure kind of ``error``, raised in ``phase``; ``unknown`` where nothing proves another."""
    error = _of_its_process(error)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
        return "oom_device"
    if isinstance(error, MemoryError):
        return "oom_host"
    if isinstance(error, (KeyboardInterrupt, DriverGoneError)):
        return "interrupted"
    if isinstance(error, DeviceError):
        return "gpu_unavailable"
    if _is_full(error):
        return "disk_full"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "port_taken"
    if isinstance(error, ConfigError):
        return "config"
    if isinstance(error, (RuntimeError, AssertionError, ValueError)):
        for kind, texts in _MESSAGES:
            if any(text in str(error) for text in texts):
                return kind
    return "config" if phase == "setup" and isinstance(error, (ValueError, ImportError)) else "unknown"


def failure_evidence(error: BaseException) -> List[str]:
    """The exception, and what caused it, as at most a few lines each: ``Type: message``.

    A file system that is full and not named by it is told by what is free in each that a run writes to.
    """
    error = _of_its_process(error)
    lines: List[str] = []
    for link in filter(None, (error, error.__cause__)):
        text = "{}: {}".format(type(link).__name__, link)
        lines.extend(line.rstrip() for line in text.splitlines()[:_EVIDENCE_LINES] if line.strip())
    if _is_full(error) and getattr(error, "filename", None) is None:
        lines.append("free: {}".format(", ".join(map(_free, (_SHARED_MEMORY, tempfile.gettempdir(), os.getcwd())))))
    return lines


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _free(folder: str) -> str:
    try:
        return "{:,} MiB in {}".format(shutil.disk_usage(folder).free >> 20, folder)
    except OSError:
        return "nothing known of {}".format(folder)


def _of_its_process(error: BaseException) -> BaseException:
    """What a task of Ray's raised in its own process: Ray's error has it as ``cause``, and begins with the task."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
