"""Scaling efficiencies and speed-ups against the smaller numbers of devices beside them, one reference for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from suite.planner.claims_conventions import Expected, Row, rate

SCALING = ("efficiency", "speedup")
_MOST_BASES = 16


def scaling(meaning: str, row: Row, beside: Sequence[Row]) -> list[Expected]:
    """What it should be against each smaller number of devices ``beside``, the smallest first; 1 for the smallest."""
    devices = row.values.get("devices")
    counts = {other.values["devices"] for other in beside if "devices" in other.values}
    if not devices or len(counts) < 2:
        return []
    smallest = min(counts)
    others = [
        other
        for other in beside
        if "devices" in other.values and (other.values["devices"] < devices or devices == smallest)
    ]
    found = []
    for other in sorted(others, key=lambda each: each.values["devices"])[:_MOST_BASES]:
        base = other.values["devices"]
        if base > devices:
            continue
        for kind, share in _shares(row, other, devices / base):
            found += _expected(meaning, f"{kind}, against N = {base:g}", share, devices / base, base)
    return found


def strays(fits: Sequence[tuple[float, set[float]]]) -> tuple[float, list[int]]:
    """The reference of a series and the positions of the rows that only another one explains.

    ``fits`` are a row's number of devices and the numbers that explain it. Where each row is explained by the next
    smaller number, every step has its own reference and none is stray.
    """
    counts = sorted({devices for devices, _ in fits})
    before = dict(zip(counts[1:], counts, strict=False))
    support = Counter(base for devices, bases in fits for base in bases if base < devices)
    if not support or all(before.get(devices, devices) in bases for devices, bases in fits):
        return 0.0, []
    reference = min(support, key=lambda base: (-support[base], base))
    return reference, [
        position for position, (devices, bases) in enumerate(fits) if devices > reference and reference not in bases
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


def _shares(row: Row, other: Row, times: float) -> list[tuple[str, float]]:
    """Scaling efficiency by what it may be taken from."""
    mine, base = rate(row.values), rate(other.values)
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
