"""Memory that a driver freed goes back to the system, so that a plan of thousands of runs needs no more than one."""

from __future__ import annotations

import ctypes


def give_back_freed() -> None:
    """Between runs, where the C library can (glibc: malloc_trim(3)); it takes about a millisecond.

    What a run leaves in caches lies between what it freed, so that glibc keeps most of that for itself.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
