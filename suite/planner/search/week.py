"""Of a week on many devices the share that is work: what start-up, checkpoints and failures leave of it."""

from __future__ import annotations

from math import sqrt

from pydantic import Field

from suite.planner.option import Option
from suite.spec.base import Frozen, UsageError

#: 419 unexpected interruptions of 16,384 GPUs in 54 days (The Llama 3 Herd of Models, arXiv 2407.21783, section 3.3.4).
DEVICE_HOURS_OF_A_FAILURE = 16_384 * 54 * 24 / 419
_WEEK = 7 * 24 * 3600.0


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
