"""What no number of a manifest, an option or a table may exceed: beyond any machine, within what formulas can take."""

from __future__ import annotations

import math
from typing import Any

#: of any count, size or seed
MOST = 1 << 48
#: of the ranks of a run, and of the factors that make them
MOST_RANKS = 1 << 20
#: of a limit or another duration that is asked for: ten years, which every timer and scheduler can hold
MOST_SECONDS = 10 * 365 * 24 * 3600
#: of one wait of a driver, which then looks again at what is due: the timers of some systems end at 24 days
LONGEST_WAIT_SECONDS = 3600.0
#: of a size in bytes: an exbibyte
MOST_BYTES = 1 << 60
#: of the iterations of one run, warm-up in
MOST_ITERATIONS = 1_000_000
#: of the samples of an iteration on one device
MOST_SAMPLES = 1 << 24
#: of samples of uneven lengths in all, each of which a manifest lists
MOST_LENGTHS = 500_000


def first_beyond(value: Any, most: float = MOST) -> tuple[str, ...] | None:
    """The path to a number within JSON-like data that is no finite one up to ``most``; ``None`` where all are.

    Steps of the path are names and positions. Does not recurse, so that depth is no matter.
    """
    left: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while left:
        path, part = left.pop()
        if isinstance(part, dict):
            left += [((*path, str(name)), inner) for name, inner in part.items()]
        elif isinstance(part, (list, tuple)):
            if not _all_small(part, most):
                left += [((*path, str(position)), inner) for position, inner in enumerate(part)]
        elif not _is_small(part, most):
            return path
    return None


def _is_small(value: Any, most: float) -> bool:
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) <= most
    return not isinstance(value, int) or abs(value) <= most


def _all_small(values: Any, most: float) -> bool:
    """Whether a long list of whole numbers is: as the lengths of samples are, of which there may be a million."""
    return all(type(value) is int for value in values) and all(-most <= value <= most for value in values)
