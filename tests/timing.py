"""Own processor time of a piece of work, held against a limit that belongs to a machine of known speed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

ATTEMPTS = 5
#: of ``_yardstick`` where the limits were chosen: a slower machine is given more time, by as much as it is slower
YARDSTICK_SECONDS = 0.12


def within(seconds: float, work: Callable[[], object]) -> bool:
    """Whether one of a few attempts takes less of this process's own time: busy neighbours only make work slower."""
    slower = max(1.0, min(processor_seconds(_yardstick) for _ in range(ATTEMPTS)) / YARDSTICK_SECONDS)
    return any(processor_seconds(work) < seconds * slower for _ in range(ATTEMPTS))


def processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _yardstick() -> None:
    """What all such work is made of: text, dictionaries and JSON."""
    made = {str(number): [number, f"{number / 7:.3f}"] for number in range(60_000)}
    json.loads(json.dumps(made))
