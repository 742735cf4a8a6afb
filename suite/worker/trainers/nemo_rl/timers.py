"""The timers of NeMo-RL's step log (v0.7.0, nemo_rl/algorithms/grpo.py), by which a step's seconds become phases.

What each of them holds and waits for, the table of docs/trainers/nemo-rl.md says.
"""

import math
from typing import Dict, NamedTuple, Optional

from suite.worker.rank import ConfigError
from suite.worker.trainers.nemo_rl.logged import LoggedStep

#: Beside the phases: the timer of the whole step, and timers that lie within another.
WHOLE, WITHIN = "whole", "within"
#: Timers are read one after the other, so that parts may add up to a little more than the whole.
_SLACK_SHARE, _SLACK_SECONDS = 0.01, 0.001
_PREFIX = "timing/train/"


class Timer(NamedTuple):
    """``phase``: of the suite's phases the one that it is part of; ``whole`` or ``within`` (another timer, and so in no
    sum); null: NeMo-RL's own work, which stays in ``other``. ``required``: every step has it."""

    phase: Optional[str]
    required: bool = True
    detail: Optional[str] = None


TIMERS = {
    _PREFIX + "total_step_time": Timer(WHOLE),
    _PREFIX + "data_processing": Timer(None),
    _PREFIX + "prepare_for_generation/total": Timer("sync"),
    _PREFIX + "prepare_for_generation/transfer_and_update_weights": Timer(WITHIN, False, "sync/transfer"),
    _PREFIX + "generation": Timer("generate"),
    _PREFIX + "reward_calculation": Timer("reward"),
    _PREFIX + "logprob_inference_prep": Timer("score", False, "score/prepare"),
    _PREFIX + "policy_and_reference_logprobs": Timer("score"),
    _PREFIX + "advantage_calculation": Timer("reward"),
    _PREFIX + "training_prep": Timer("train", True, "train/prepare"),
    _PREFIX + "policy_training": Timer("train"),
}


class Timed(NamedTuple):
    """The seconds of one step: the whole, by phase, and by ``phase/part``."""

    seconds: float
    phases: Dict[str, float]
    details: Dict[str, float]


def time_step(step: LoggedStep) -> Timed:
    """The step's seconds by NeMo-RL's own timers.

    Raises ConfigError for a timer that is missing, not finite or negative, and for parts longer than the whole.
    """
    missing = [name for name, timer in TIMERS.items() if timer.required and name not in step.values]
    if missing:
        raise ConfigError(
            "step {} of the log has no {}: a version that logs by other names?".format(step.number, ", ".join(missing))
        )
    phases: Dict[Optional[str], float] = {}
    details: Dict[str, float] = {}
    for name in filter(TIMERS.__contains__, step.values):
        timer, seconds = TIMERS[name], step.values[name]
        if seconds is None or seconds < 0:
            raise ConfigError("step {} of the log took {} in {}".format(step.number, seconds, name))
        phases[timer.phase] = phases.get(timer.phase, 0.0) + seconds
        if timer.detail is not None:
            details[timer.detail] = seconds
    whole = phases.pop(WHOLE)
    for no_phase in (WITHIN, None):
        phases.pop(no_phase, None)
    parts = math.fsum(phases.values())
    if whole <= 0 or parts > whole * (1 + _SLACK_SHARE) + _SLACK_SECONDS:
        raise ConfigError(
            "the phases of step {} of the log take {:.6g} s, the step {:.6g} s".format(step.number, parts, whole)
        )
    return Timed(whole, phases, details)
