"""What is wished for, a rate or a deadline, and what a user knows: devices, their prices, pauses, and what these leave
of a week. Wishes that contradict each other are refused."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

from pydantic import Field

from suite.planner.ask import named_device
from suite.planner.hardware import hardware_of
from suite.planner.option import Option
from suite.spec.base import Frozen, UsageError
from suite.spec.catalogue import devices as known_devices
from suite.spec.typed import shown

_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_TARGET = re.compile(rf"{_NUMBER} ?(samples/s|tokens/s|s/iteration)?")
_DEADLINE = re.compile(rf"{_NUMBER} ?(s|min|h|d)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 40
#: 419 unexpected interruptions of 16,384 GPUs in 54 days (The Llama 3 Herd of Models, arXiv 2407.21783, section 3.3.4).
DEVICE_HOURS_OF_A_FAILURE = 16_384 * 54 * 24 / 419
_WEEK = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Target:
    """Samples per second that are wanted, and what was written."""

    samples_per_second: float
    text: str


def target_of(
    target: str | None, deadline: str | None, iterations: int | None, samples: int, sample_tokens: float
) -> Target | None:
    """The rate that ``--target``, or ``--deadline`` for so many iterations, comes to; ``None`` where neither is given.

    ``samples`` of an iteration, ``sample_tokens`` of a mean one. Raises UsageError for what cannot be read and for
    wishes of which only one can be meant.
    """
    if target is not None and deadline is not None:
        raise UsageError("--target and --deadline are two ways to ask for a rate: give one of them")
    if deadline is None and iterations is not None:
        raise UsageError("--iterations is how much there is to do until --deadline, which is not given")
    if target is not None:
        value, unit = _read(
            _TARGET, target, "--target is a rate such as '50 samples/s', '20000 tokens/s' or '60 s/iteration'"
        )
        rate = {"tokens/s": value / sample_tokens, "s/iteration": samples / value}.get(unit or "", value)
        return Target(rate, f"{value:g} {unit or 'samples/s'}")
    if deadline is None:
        return None
    if iterations is None or iterations < 1:
        raise UsageError(
            "--deadline needs --iterations, how many are to be done until then: --deadline 24h --iterations 500"
        )
    value, unit = _read(_DEADLINE, deadline, "--deadline is a time such as 24h, 90min or 3d")
    rate = iterations * samples / (value * _SECONDS[unit])
    return Target(rate, f"{iterations:,} iterations of {samples:,} samples in {value:g} {unit}")


def _read(pattern: re.Pattern[str], text: str, form: str) -> tuple[float, str]:
    found = pattern.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    value = float(found[1]) if found else 0.0
    if found is None or not isfinite(value) or value <= 0:
        raise UsageError(f"{form}, not {shown(text)}")
    return value, found[2] or ""


@dataclass(frozen=True)
class Prices:
    """Money per device and hour: of every device, or by name."""

    every: float | None
    by_device: dict[str, float]

    def of(self, device: str) -> float | None:
        return self.by_device.get(device, self.every)

    @property
    def text(self) -> str:
        """Whose prices these are."""
        if self.every is None and not self.by_device:
            return "none given: the suite knows no prices (--price 2.10, or --price H100-SXM-80GB=2.10 for each device)"
        every = [] if self.every is None else [f"{self.every:g}"]
        named = [f"{name} {price:g}" for name, price in self.by_device.items()]
        return "yours, per device and hour: " + ", ".join(every + named)


def read_prices(texts: Sequence[str]) -> Prices:
    """``2.10``, or ``H100-SXM-80GB=2.10`` as often as there are devices. UsageError for anything else."""
    every, by_device = None, {}
    for text in texts:
        name, separator, number = text.rpartition("=")
        value = float(number) if re.fullmatch(_NUMBER, number.strip()) and len(number) < _LONGEST else None
        if value is None or (separator and not name.strip()):
            raise UsageError(f"--price is money per device and hour, 2.10 or H100-SXM-80GB=2.10, not {shown(text)}")
        if not separator:
            every = value
        else:
            by_device[named_device(name)[0].name] = value
    return Prices(every, by_device)


def device_kinds(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Devices by the names of the catalogue, and notes; ``any`` is all of it. Raises UsageError for unknown ones."""
    if not any(name.strip().lower() == "any" for name in names):
        found = [named_device(name) for name in names]
        return list(dict.fromkeys(device.name for device, _ in found)), [note for _, note in found if note]
    peaks = {name: hardware_of(device) is not None for name, device in known_devices().items()}
    kinds = [name for name, has_peak in peaks.items() if has_peak and not name.endswith("-module")]
    left = [name for name in peaks if name not in kinds]
    return kinds, [f"not looked at, without a 16-bit peak or twice in the catalogue: {', '.join(left)}"] if left else []


class Pauses(Frozen):
    """Seconds that the user knows of their own cluster."""

    checkpoint: float = Field(description="in which a checkpoint halts everything")
    restart: float = Field(description="from a failure, or the first command, to the next iteration")


class Week(Frozen):
    """What a week comes to, where devices fail as often as Llama 3's."""

    goodput: float = Field(description="the share of it that is work")
    samples: float
    failure_seconds: float = Field(description="between two failures")
    checkpoint_seconds: float = Field(description="between two checkpoints, of all intervals the one that loses least")

    @property
    def text(self) -> str:
        return (
            f"{100 * self.goodput:.1f} % of a week is work, {self.samples:,.0f} samples: a failure every "
            f"{self.failure_seconds / 86400:.3g} days as of Llama 3's devices, a checkpoint every "
            f"{self.checkpoint_seconds / 60:,.0f} min"
        )


def pauses_of(checkpoint: float | None, restart: float | None) -> Pauses | None:
    """``None`` where neither is given. Raises UsageError for one without the other, and for no time at all."""
    if checkpoint is None and restart is None:
        return None
    if checkpoint is None or restart is None or not (0 < checkpoint < _WEEK and 0 < restart < _WEEK):
        raise UsageError("what a week comes to needs --checkpoint and --restart, both in seconds, less than a week")
    return Pauses(checkpoint=checkpoint, restart=restart)


def week_of(option: Option, pauses: Pauses) -> Week:
    """A failure loses a restart and half of what lies between two checkpoints; the best interval is the root of twice
    a checkpoint times the time between failures (Young, CACM 17 (9), 1974)."""
    between = DEVICE_HOURS_OF_A_FAILURE * 3600 / option.devices
    interval = min(_WEEK, sqrt(2 * pauses.checkpoint * between))
    lost = pauses.checkpoint / interval + (interval / 2 + pauses.restart) / between + pauses.restart / _WEEK
    goodput = max(0.0, 1 - lost)
    return Week(
        goodput=goodput,
        samples=goodput * option.samples_per_second * _WEEK,
        failure_seconds=between,
        checkpoint_seconds=interval,
    )
