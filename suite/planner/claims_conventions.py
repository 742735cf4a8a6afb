"""Every way in which a published figure follows from the others of its row, and of rows beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.planner.claims_flops import peaks, per_token

#: Columns that are recomputed.
CHECKED = (
    *("step_time", "tokens", "tokens_per_device", "samples", "samples_per_device"),
    *("tflops_per_device", "mfu", "hfu", "efficiency", "speedup"),
)


@dataclass(frozen=True)
class Row:
    """One row in base units: numbers by meaning, words by meaning, and the line it stands on."""

    line: int
    values: Mapping[str, float]
    words: Mapping[str, str]


@dataclass(frozen=True)
class Expected:
    """What a figure should be under a convention; ``wrong`` says why a figure that fits it is mislabelled."""

    convention: str
    value: float
    wrong: str = ""


def expected(meaning: str, row: Row, beside: Sequence[Row]) -> list[Expected]:
    """All values that the figure ``meaning`` of ``row`` may have; ``beside`` are the rows of the same model."""
    values = {name: value for name, value in row.values.items() if name != meaning}
    if meaning in ("efficiency", "speedup"):
        return _scaling(meaning, row, beside)
    if meaning in ("mfu", "hfu"):
        return _utilisation(values, row)
    if meaning == "tflops_per_device":
        return _tflops(values)
    found = [entry for entry in _rates(meaning, values) if entry.value > 0]
    return found + _mislabelled(meaning, found, values.get("devices"))


def rate(values: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second and device, by the columns it follows from."""
    devices, sequence, found = values.get("devices"), values.get("sequence"), {}
    if "tokens_per_device" in values:
        found["tokens/s per device"] = values["tokens_per_device"]
    if devices and "tokens" in values:
        found["tokens/s"] = values["tokens"] / devices
    if devices and sequence and values.get("step_time") and "global_batch" in values:
        found["step time"] = values["global_batch"] * sequence / values["step_time"] / devices
    if devices and sequence and "samples" in values:
        found["samples/s"] = values["samples"] * sequence / devices
    if sequence and "samples_per_device" in values:
        found["samples/s per device"] = values["samples_per_device"] * sequence
    return found


def _rates(meaning: str, values: Mapping[str, float]) -> list[Expected]:
    devices, sequence = values.get("devices"), values.get("sequence")
    found = []
    for origin, per_device in rate(values).items():
        if per_device <= 0:
            continue
        if meaning == "tokens_per_device":
            found.append(Expected(f"from {origin}", per_device))
        elif meaning == "tokens" and devices:
            found.append(Expected(f"from {origin}", per_device * devices))
        elif meaning == "samples_per_device" and sequence:
            found.append(Expected(f"from {origin}", per_device / sequence))
        elif meaning == "samples" and devices and sequence:
            found.append(Expected(f"from {origin}", per_device * devices / sequence))
        elif meaning == "step_time" and devices and sequence and "global_batch" in values:
            found.append(Expected(f"from {origin}", values["global_batch"] * sequence / (per_device * devices)))
    batch, step = values.get("global_batch"), values.get("step_time")
    if meaning == "samples" and batch and step:
        found.append(Expected("from batch and step time", batch / step))
    return found


def _mislabelled(meaning: str, found: Sequence[Expected], devices: float | None) -> list[Expected]:
    if not devices or devices <= 1:
        return []
    if meaning.endswith("_per_device"):
        return [
            Expected(f"total {entry.convention}", entry.value * devices, "a total, not per device") for entry in found
        ]
    if meaning == "step_time":
        return [
            Expected(f"{entry.convention} of one device", entry.value * devices, "the rates are per device, not totals")
            for entry in found
        ]
    return [
        Expected(f"per device {entry.convention}", entry.value / devices, "per device, not a total") for entry in found
    ]


def _tflops(values: Mapping[str, float]) -> list[Expected]:
    found = [
        Expected(f"{count} (from {origin})", flops * tokens)
        for origin, tokens in rate(values).items()
        for count, flops in per_token(values).items()
    ]
    devices = values.get("devices", 1.0)
    totals = [
        Expected(f"total {entry.convention}", entry.value * devices, "a total, not per device") for entry in found
    ]
    return found + (totals if devices > 1 else [])


def _utilisation(values: Mapping[str, float], row: Row) -> list[Expected]:
    rates = _tflops({name: value for name, value in values.items() if name not in ("mfu", "hfu")})
    if "tflops_per_device" in values:
        rates = [Expected("stated TFLOP/s", values["tflops_per_device"]), *rates]
    known = peaks(row.words.get("device", ""), row.words.get("precision", "").lower(), values)
    return [
        Expected(f"{entry.convention} / {name}", entry.value / peak, entry.wrong)
        for entry in rates
        for name, peak in known.items()
    ]


def _scaling(meaning: str, row: Row, beside: Sequence[Row]) -> list[Expected]:
    """Against each smaller number of devices of the same model, the smallest first."""
    devices, found = row.values.get("devices"), []
    if not devices:
        return []
    others = [other for other in beside if 0 < other.values.get("devices", 0) <= devices]
    if len({other.values.get("devices") for other in beside}) < 2:
        return []
    for other in sorted(others, key=lambda each: each.values["devices"])[:16]:
        base = other.values["devices"]
        for kind, share in _shares(row, other, devices / base):
            text = f"{kind}, against N = {base:g}"
            ratio = share * devices / base
            if meaning == "speedup":
                found.append(Expected(text, ratio))
                found += (
                    [Expected(f"efficiency, {text}", share, "an efficiency, not a speed-up")]
                    if other is not row
                    else []
                )
            else:
                found.append(Expected(text, share))
                found += (
                    [Expected(f"speed-up, {text}", ratio, "a speed-up, not an efficiency")] if devices > base else []
                )
    return found


def _shares(row: Row, other: Row, times: float) -> list[tuple[str, float]]:
    """Scaling efficiency by what it may be taken from."""
    mine, base = rate(row.values), rate(other.values)
    found = [(f"from {origin}", mine[origin] / base[origin]) for origin in mine if base.get(origin, 0) > 0]
    for name, label in (("tflops_per_device", "from TFLOP/s"), ("mfu", "from MFU")):
        if row.values.get(name) and other.values.get(name):
            found.append((label, row.values[name] / other.values[name]))
    for name, share in (("tokens", 1 / times), ("samples", 1 / times)):
        if row.values.get(name) and other.values.get(name):
            found.append((f"from {name}/s", share * row.values[name] / other.values[name]))
    if row.values.get("step_time") and other.values.get("step_time") and not (mine and base):
        ratio = other.values["step_time"] / row.values["step_time"]
        found += [("from step time, work grows with N", ratio), ("from step time, work fixed", ratio / times)]
    return found
