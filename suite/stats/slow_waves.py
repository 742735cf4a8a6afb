"""How a series wanders: its slow waves, which tell of noise that lasts for several iterations."""

import math
from collections.abc import Sequence
from functools import lru_cache

#: Longer series are averaged in equal consecutive blocks.
MOST_POINTS = 200


def blocks(values: Sequence[float]) -> list[float]:
    """Means of consecutive blocks of equal length, ``MOST_POINTS`` at most; a short rest is left out."""
    length = -(-len(values) // MOST_POINTS)
    whole = len(values) // length
    return [math.fsum(values[length * block : length * (block + 1)]) / length for block in range(whole)]


def number_of_waves(count: int) -> int:
    """How many of a series' slowest waves are used: 0.4 n^(2/3), at least 2.

    More would take in faster waves, which are weaker where successive values are correlated; fewer leave few degrees of
    freedom (Lazarus, Lewis, Stock & Watson, Journal of Business & Economic Statistics 36, 2018).
    """
    return max(2, int(0.4 * count ** (2 / 3) + 1e-9))


def slow_waves(values: Sequence[float], first: int, number: int) -> list[float]:
    """Amplitudes of ``number`` cosine waves from the ``first`` on; wave j has j half periods over the whole series.

    Of independent values of equal variance each amplitude has that variance, and they are independent of each other and
    of the mean. ``first`` is 1 or more, and the last wave below the number of values.
    """
    count = len(values)
    assert first >= 1 and first + number <= count, "a series of n values has n - 1 waves"
    return [
        math.fsum(weight * value for weight, value in zip(_wave(count, wave), values, strict=True))
        for wave in range(first, first + number)
    ]


@lru_cache(maxsize=1024)
def _wave(count: int, wave: int) -> tuple[float, ...]:
    scale = math.sqrt(2 / count)
    return tuple(scale * math.cos(math.pi * wave * (index + 0.5) / count) for index in range(count))
