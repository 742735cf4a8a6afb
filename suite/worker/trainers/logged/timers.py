"""What a trainer's own timers hold, as data: by it the reader makes phases of them, and the documentation its table."""

import math
from dataclasses import dataclass
from typing import Dict, Optional, Sequence, Tuple

from suite.worker.phases import check_phase
from suite.worker.rank import ConfigError
from suite.worker.trainers.logged.reading import LoggedStep

#: Beside the phases: the timer of the whole step, and timers that lie within another.
WHOLE, WITHIN = "whole", "within"
#: Timers are read one after the other, so that parts may add up to a little more than the whole.
_SLACK_SHARE, _SLACK_SECONDS = 0.01, 0.001


@dataclass(frozen=True)
class Timer:
    """One timer of a trainer, by the name under which it is logged.

    ``phase``: of the suite's phases the one that it is part of; ``whole`` or ``within`` (another timer, and so in no
    sum); null: the trainer's own work, which stays in ``other``. ``waits``: what its end waits for, and so whether a
    device has finished by then. ``overlaps``: what runs at the same time. ``where``: file and line in the source.
    ``required``: every step has it.
    """

    name: str
    phase: Optional[str]
    includes: str
    waits: str
    overlaps: str
    where: str
    required: bool = True
    detail: Optional[str] = None


@dataclass(frozen=True)
class Timed:
    """The seconds of one step: the whole, by phase, and by ``phase/part``."""

    seconds: float
    phases: Dict[str, float]
    details: Dict[str, float]


def time_step(step: LoggedStep, timers: Sequence[Timer], trainer: str) -> Timed:
    """The step's seconds by the trainer's own timers; without one of the whole, those between two steps' last lines.

    Raises ConfigError for a timer that is missing, not finite or negative, and for parts longer than the whole.
    """
    names = [timer.name for timer in timers if timer.required and timer.name not in step.values]
    if names:
        raise ConfigError(
            "step {} of {} has no {}: a version that logs by other names?".format(
                step.number, trainer, ", ".join(names)
            )
        )
    whole = step.ended - step.began
    phases: Dict[str, float] = {}
    details: Dict[str, float] = {}
    for timer in timers:
        if timer.name not in step.values:
            continue
        seconds = step.values[timer.name]
        if seconds is None or not math.isfinite(seconds) or seconds < 0:
            raise ConfigError("step {} of {} took {} in {}".format(step.number, trainer, seconds, timer.name))
        if timer.phase == WHOLE:
            whole = seconds
        elif timer.phase not in (None, WITHIN):
            check_phase(str(timer.phase))
            phases[str(timer.phase)] = phases.get(str(timer.phase), 0.0) + seconds
        if timer.detail is not None:
            details[timer.detail] = details.get(timer.detail, 0.0) + seconds
    parts = math.fsum(phases.values())
    if whole <= 0 or parts > whole * (1 + _SLACK_SHARE) + _SLACK_SECONDS:
        raise ConfigError(
            "the phases of step {} of {} take {:.6g} s, the step {:.6g} s".format(step.number, trainer, parts, whole)
        )
    return Timed(whole, phases, details)


def phases_of(timers: Sequence[Timer]) -> Tuple[str, ...]:
    """The phases that these timers tell of in every step, in the order they are declared."""
    return tuple(
        dict.fromkeys(
            str(timer.phase) for timer in timers if timer.required and timer.phase not in (None, WHOLE, WITHIN)
        )
    )
