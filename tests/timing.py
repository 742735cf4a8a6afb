"""Speed limits of tests, on machines that are shared and busy."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ATTEMPTS = 5


def within(seconds: float, work: Callable[[], object]) -> bool:
    """Whether one of a few attempts takes less of this process's own time: busy neighbours only make work slower."""
    return any(processor_seconds(work) < seconds for _ in range(ATTEMPTS))


def processor_seconds(work: Callable[[], object]) -> float:
    """What other tests left in this process is not looked through by the collector; what the work makes is."""
    gc.collect()
    gc.freeze()
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.unfreeze()
