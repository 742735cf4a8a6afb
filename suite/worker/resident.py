"""The resident set of this process, read from Linux's /proc with the standard library alone.

The files stay open: they are read at every phase edge, and opening them costs more than reading.
"""

import os
from functools import lru_cache

_STATUS_BYTES = 1 << 14
_RESET_PEAK = b"5"  # proc(5), /proc/pid/clear_refs: reset the peak resident set to the current one


def resident_bytes() -> int:
    """Resident set now (VmRSS)."""
    return _field(b"\nVmRSS:")


def peak_resident_bytes() -> int:
    """Largest resident set since the last reset (VmHWM)."""
    return _field(b"\nVmHWM:")


def reset_peak_resident() -> None:
    os.pwrite(_descriptor("/proc/self/clear_refs", os.O_WRONLY), _RESET_PEAK, 0)


def _field(name: bytes) -> int:
    """A field of /proc/self/status, whose lines read ``name:<white space>number kB``."""
    text = os.pread(_descriptor("/proc/self/status", os.O_RDONLY), _STATUS_BYTES, 0)
    return int(text.split(name, 1)[1].split(None, 1)[0]) * 1024


@lru_cache(maxsize=None)
def _descriptor(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC)
