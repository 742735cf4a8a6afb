"""One function over many bundles on all cores, in processes that may be killed."""

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import TypeVar

#: From so many bundles on; for fewer it is not worth starting processes.
MANY = 200
_CHUNK = 25
Given = TypeVar("Given")
Made = TypeVar("Made")


def worth_it(count: int) -> bool:
    """Whether so many bundles are worth starting processes, and there are cores for them."""
    return count >= MANY and len(os.sched_getaffinity(0)) > 1


def on_all_cores(function: Callable[[Given], Made], given: Sequence[Given]) -> Iterator[Made]:
    """What ``function`` makes of each, in their order. Where a process is killed it ends early, and hangs nothing."""
    context = multiprocessing.get_context("fork")
    with (
        suppress(BrokenProcessPool),
        # what the processes are forked with is not looked through for garbage at all
        ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context, initializer=gc.freeze) as pool,
    ):
        yield from pool.map(function, given, chunksize=_CHUNK)
