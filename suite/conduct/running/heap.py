"""Memory that a driver freed goes back to the system, so that a plan of thousands of runs needs no more than one."""

from __future__ import annotations

import ctypes
import gc

from suite.launch.processes import c_library


def freeze_gc_baseline() -> None:
    """Before the first run: modules are there for ever, and need not be looked through between runs."""
    gc.collect()
    gc.freeze()


def give_back_freed() -> None:
    """Between runs; it takes a few milliseconds.

    A run leaves some 15 KB in circles, which Python looks for only once a quarter of all objects is new. And what stays
    in caches lies between what was freed, so that glibc keeps that unless it is asked (malloc_trim(3)); other C
    libraries have no such function.
    """
    gc.collect()
    trim = getattr(c_library(), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
