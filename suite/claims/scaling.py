"""Scaling efficiencies and speed-ups against the smaller numbers of devices of a series, one reference for all."""

from collections import Counter
from collections.abc import Iterable, Sequence

from suite.claims.conventions import Expected, Row

SCALING = ("efficiency", "speedup")
_MOST_ROWS = 32


def count(row: Row) -> float | None:
    """What a series grows in: devices, or nodes where only these are given."""
    return row.values.get("devices", row.values.get("nodes"))


class Series:
    """Rows to compare with each other, in the order of what they grow in."""

    def __init__(self, rows: Iterable[Row]) -> None:
        counted = sorted(rows, key=lambda row: count(row) or 0.0)
        self.smallest = counted[:_MOST_ROWS]
        #: rows with each number of devices
        self.rows = Counter(number for row in counted if (number := count(row)))
        self.least = min(self.rows, default=0.0)


def scaling(meaning: str, row: Row, series: Series) -> list[Expected]:
    """What it should be against each smaller number of devices of its series, the smallest first; 1 for the smallest.

    A speed-up may also be over another row of as many devices.
    """
    devices = count(row)
    is_alone = meaning != "speedup" or not devices or series.rows[devices] < 2
    if not devices or (len(series.rows) < 2 and is_alone):
        return []
    found = []
    for other in series.smallest:
        base = count(other)
        if not base or base > devices or (base == devices != series.least and is_alone):
            continue
        for kind, share in shares(row, other, devices / base):
            where = f"N = {base:g}" if base < devices or other is row else f"line {other.line}"
            found += _expected(meaning, f"{kind}, against {where}", share, devices / base, base)
    return found


def strays(fits: Sequence[tuple[float, set[float]]]) -> tuple[float, list[int]]:
    """The reference of a series and the positions of the rows that only another one explains.

    ``fits`` are a row's number of devices and the numbers that explain it. Where each row is explained by the next
    smaller number, every step has its own reference and none is stray.
    """
    counts = sorted({devices for devices, _ in fits})
    before = dict(zip(counts[1:], counts, strict=False))
    support = Counter(base for devices, bases in fits for base in bases if devices not in bases)
    if not support or all(before.get(devices, devices) in bases for devices, bases in fits):
        return 0.0, []
    reference = min(support, key=lambda base: (-support[base], base))
    return reference, [
        position
        for position, (devices, bases) in enumerate(fits)
        if devices > reference and not bases & {reference, devices}
    ]


def _expected(meaning: str, text: str, share: float, times: float, base: float) -> list[Expected]:
    ratio = share * times
    if meaning == "speedup":
        right = Expected(text, ratio, base=base)
        wrong = Expected(f"efficiency, {text}", share, "an efficiency, not a speed-up", base)
    else:
        right = Expected(text, share, base=base)
        wrong = Expected(f"speed-up, {text}", ratio, "a speed-up, not an efficiency", base)
    return [right, wrong] if times > 1 else [right]


def shares(row: Row, other: Row, times: float) -> list[tuple[str, float]]:
    """Scaling efficiency against ``other``, which has ``times`` fewer devices, by what it may be taken from."""
    mine, base = row.rates, other.rates
    found = [(f"from {origin}", mine[origin] / base[origin]) for origin in mine if base.get(origin, 0) > 0]
    for name, label, share in (
        ("tflops_per_device", "from TFLOP/s", 1.0),
        ("mfu", "from MFU", 1.0),
        ("tokens", "from tokens/s", 1 / times),
        ("samples", "from samples/s", 1 / times),
        ("samples_per_device", "from samples/s per device", 1.0),
    ):
        if row.values.get(name) and other.values.get(name):
            found.append((label, share * row.values[name] / other.values[name]))
    if row.values.get("step_time") and other.values.get("step_time") and not (mine and base):
        ratio = other.values["step_time"] / row.values["step_time"]
        found += [("from step time, work grows with N", ratio), ("from step time, work fixed", ratio / times)]
    return found
