"""Every way in which a published figure follows from the others of its row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from suite.claims.flops import peaks, per_token, stated_peak
from suite.claims.lengths import Length, lengths_of

#: Columns that are recomputed.
CHECKED = (
    *("step_time", "tokens", "tokens_per_device", "samples", "samples_per_device", "tflops_per_device"),
    *("flops_total", "peak_flops", "mfu", "hfu", "efficiency", "speedup", "train_time", "device_hours"),
)


@dataclass(frozen=True)
class Row:
    """One row in base units: numbers by meaning, words by meaning, its line in the file, and the rounding of its
    numbers as a share of each."""

    line: int
    values: Mapping[str, float]
    words: Mapping[str, str]
    rounding: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def rates(self) -> dict[str, float]:
        """Tokens per second and device, see ``rate``: every row of a series asks for them."""
        return rate(self.values)


class Expected(NamedTuple):
    """What a figure should be under a convention; ``wrong``: why a figure that fits it is mislabelled.

    ``base`` is the number of devices that a scaling figure is against. ``family`` is what the rows of a table should
    have in common, ``cost`` how far-fetched a convention is. A figure may lie anywhere in ``low`` .. ``high`` where
    these are not 0.
    """

    convention: str
    value: float
    wrong: str = ""
    base: float = 0.0
    cost: int = 0
    family: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0


def expected(meaning: str, row: Row) -> list[Expected]:
    """All values that the figure ``meaning`` of ``row`` may have by the other figures of that row."""
    if meaning == "peak_flops":
        return [Expected(peak.name, peak.flops, peak.wrong) for peak in stated_peak(row.words, row.values)]
    values = {name: value for name, value in row.values.items() if name != meaning}
    if meaning in ("mfu", "hfu"):
        return _utilisation(meaning, values, row)
    if meaning == "tflops_per_device":
        return _tflops(values, row)
    if meaning == "flops_total":
        return _flops_in_all(values, row)
    if meaning in ("train_time", "device_hours"):
        return _durations(meaning, values)
    found = _by_lengths(meaning, values, lengths_of(values, row.words))
    return found + _mislabelled(meaning, found, values.get("devices"))


def rate(values: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second and device, by the columns it follows from."""
    found, sequence = token_rates(values), values.get("sequence")
    if sequence:
        found |= {origin: sequence * samples for origin, samples in sample_rates(values).items()}
    return found


def token_rates(values: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second and device, by the columns it follows from without a length."""
    devices, found = values.get("devices"), {}
    if "tokens_per_device" in values:
        found["tokens/s per device"] = values["tokens_per_device"]
    if devices and "tokens" in values:
        found["tokens/s"] = values["tokens"] / devices
    if "training_tokens" in values and "device_hours" in values:
        found["tokens and device hours"] = values["training_tokens"] / values["device_hours"]
    if devices and "training_tokens" in values and "train_time" in values:
        found["tokens and training time"] = values["training_tokens"] / values["train_time"] / devices
    if devices and "batch_tokens" in values and "step_time" in values:
        found["step time"] = values["batch_tokens"] / values["step_time"] / devices
    return found


def sample_rates(values: Mapping[str, float]) -> dict[str, float]:
    """Samples per second and device, by the columns it follows from."""
    devices, found = values.get("devices"), {}
    if devices and "global_batch" in values and "step_time" in values:
        found["step time"] = values["global_batch"] / values["step_time"] / devices
    if devices and "samples" in values:
        found["samples/s"] = values["samples"] / devices
    if "samples_per_device" in values:
        found["samples/s per device"] = values["samples_per_device"]
    return found


def _by_lengths(meaning: str, values: Mapping[str, float], lengths: Sequence[Length]) -> list[Expected]:
    """What a rate or a step time should be, by each length that tokens may be counted by."""
    bare = {name: value for name, value in values.items() if name != "sequence"}
    found = _rates(meaning, bare)
    known = {entry.convention for entry in found}
    for length in lengths:
        at = {
            tokens: {entry.convention: entry.value for entry in _rates(meaning, {**bare, "sequence": tokens})}
            for tokens in (length.tokens, length.low, length.high)
        }
        found += [
            Expected(
                f"{convention}{length.text}",
                value,
                low=min(at[length.low][convention], at[length.high][convention]),
                high=max(at[length.low][convention], at[length.high][convention]),
            )
            for convention, value in at[length.tokens].items()
            if convention not in known
        ]
    return found


def _rates(meaning: str, values: Mapping[str, float]) -> list[Expected]:
    """What a rate or a step time should be. Totals follow from each other whatever the number of devices is."""
    if "devices" not in values and not meaning.endswith("_per_device"):
        values = {name: value for name, value in values.items() if not name.endswith("_per_device")} | {"devices": 1.0}
    devices, sequence = values.get("devices"), values.get("sequence")
    tokens, samples = rate(values), sample_rates(values)
    if sequence:
        samples |= {origin: each / sequence for origin, each in token_rates(values).items()}
    if meaning == "step_time":
        found = {
            **_over(values.get("batch_tokens"), token_rates(values), devices),
            **_over(values.get("global_batch"), samples, devices),
        }
    else:
        each = tokens if meaning.startswith("tokens") else samples
        share = 1.0 if meaning.endswith("_per_device") else devices
        found = {origin: share * value for origin, value in each.items()} if share else {}
    return [Expected(f"from {origin}", value) for origin, value in found.items() if value > 0]


def _over(work: float | None, rates: Mapping[str, float], devices: float | None) -> dict[str, float]:
    """Seconds of a batch at each rate per device."""
    if not work or not devices:
        return {}
    return {origin: work / (value * devices) for origin, value in rates.items() if value > 0}


def _mislabelled(meaning: str, found: Sequence[Expected], devices: float | None) -> list[Expected]:
    if not devices or devices <= 1:
        return []
    if meaning.endswith("_per_device"):
        factor, called, wrong = devices, "total {}", "a total, not per device"
    elif meaning == "step_time":
        factor, called, wrong = devices, "{} of one device", "the rates are per device, not totals"
    else:
        factor, called, wrong = 1 / devices, "per device {}", "per device, not a total"
    return [
        entry._replace(
            convention=called.format(entry.convention),
            value=entry.value * factor,
            wrong=wrong,
            low=entry.low * factor,
            high=entry.high * factor,
        )
        for entry in found
    ]


def _tflops(values: Mapping[str, float], row: Row, hardware_flops: bool = False) -> list[Expected]:
    counts = per_token(values, row.words, hardware_flops)
    found = [
        Expected(f"{count.name} (from {origin})", count.flops * tokens, count.wrong, 0.0, count.cost, (count.family,))
        for origin, tokens in rate(values).items()
        for count in counts
    ]
    devices = values.get("devices", 1.0)
    if "flops_total" in values and "devices" in values:
        found.append(Expected("stated total / devices", values["flops_total"] / devices))
    if devices <= 1:
        return found
    totals = [
        Expected(
            f"total {entry.convention}",
            entry.value * devices,
            "a total, not per device",
            cost=entry.cost + 1,
            family=entry.family,
        )
        for entry in found
    ]
    return found + totals


def _flops_in_all(values: Mapping[str, float], row: Row) -> list[Expected]:
    devices = values.get("devices")
    if not devices:
        return []
    each = [entry for entry in _tflops(values, row) if "total" not in entry.convention]
    if "tflops_per_device" in values:
        each = [Expected("stated TFLOP/s", values["tflops_per_device"]), *each]
    return [entry._replace(convention=f"{entry.convention} x devices", value=devices * entry.value) for entry in each]


def _durations(meaning: str, values: Mapping[str, float]) -> list[Expected]:
    """Wall-clock seconds, or seconds of all devices, of a whole training."""
    devices, tokens, found = values.get("devices"), values.get("training_tokens"), []
    if devices and "train_time" in values:
        found.append(Expected("from training time and devices", devices * values["train_time"]))
    if devices and "device_hours" in values:
        found.append(Expected("from device hours", values["device_hours"] / devices))
    if tokens:
        rates = {name: value for name, value in rate(values).items() if not name.startswith("tokens and") and value > 0}
        share = devices if meaning == "train_time" else 1.0
        found += [Expected(f"tokens over {name}", tokens / value / share) for name, value in rates.items() if share]
    return found


def _utilisation(meaning: str, values: Mapping[str, float], row: Row) -> list[Expected]:
    """MFU or HFU. Where a row states its TFLOP/s, its MFU is these over a peak; its HFU may count recompute besides."""
    rates, known = model_rates(meaning, values, row), peaks(row.words, values)
    return [
        Expected(
            f"{entry.convention} / {peak.name}",
            entry.value / peak.flops,
            entry.wrong or (peak.wrong and f"a utilisation {peak.wrong}"),
            cost=entry.cost + peak.cost,
            family=(*entry.family, peak.name),
        )
        for entry in rates
        for peak in known
    ]


def model_rates(meaning: str, values: Mapping[str, float], row: Row) -> list[Expected]:
    """FLOP/s per device that a utilisation may be of."""
    bare = {name: value for name, value in values.items() if name not in ("mfu", "hfu")}
    if "tflops_per_device" not in values:
        return _tflops(bare, row, meaning == "hfu")
    stated = [Expected("stated TFLOP/s", values["tflops_per_device"], family=("stated",))]
    return stated if meaning == "mfu" else [*stated, *_tflops(bare, row, hardware_flops=True)]
