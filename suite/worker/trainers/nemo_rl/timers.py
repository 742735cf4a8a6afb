"""What NeMo-RL's timers hold (v0.7.0, nemo_rl/algorithms/grpo.py; the class is in nemo_rl/utils/timer.py), as data.

By it a step's seconds become phases, and the documentation has its table.
"""

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional

from suite.worker.rank import ConfigError
from suite.worker.trainers.nemo_rl.logged import LoggedStep

#: Beside the phases: the timer of the whole step, and timers that lie within another.
WHOLE, WITHIN = "whole", "within"
#: Timers are read one after the other, so that parts may add up to a little more than the whole.
_SLACK_SHARE, _SLACK_SECONDS = 0.01, 0.001
_RETURNED = "the results of Ray's workers in host memory; no device is synchronised for the clock"
_CONTROLLER = "nothing: the controller's own work"


@dataclass(frozen=True)
class Timer:
    """One timer of a step, by the name under which it is logged.

    ``phase``: of the suite's phases the one that it is part of; ``whole`` or ``within`` (another timer, and so in no
    sum); null: NeMo-RL's own work, which stays in ``other``. ``waits``: what its end waits for, and so whether a
    device has finished by then. ``where``: file and line in the source. ``required``: every step has it.
    """

    name: str
    phase: Optional[str]
    includes: str
    waits: str
    where: str
    required: bool = True
    detail: Optional[str] = None


@dataclass(frozen=True)
class Timed:
    """The seconds of one step: the whole, by phase, and by ``phase/part``."""

    seconds: float
    phases: Dict[str, float]
    details: Dict[str, float]


def _timer(name: str, phase: Optional[str], includes: str, waits: str, line: str, **options: Any) -> Timer:
    where = "nemo_rl/algorithms/{}".format(line)
    return Timer("timing/train/" + name, phase, includes, waits, where, **options)


TIMERS = (
    _timer(
        "total_step_time",
        WHOLE,
        "everything from the batch on to the end of training and its statistics; not the writing of logs, nor the "
        "batch that is dumped to a file after each step",
        _RETURNED,
        "grpo.py:2258",
    ),
    _timer(
        "data_processing",
        None,
        "repeating the prompts of a group, and after generation the masks and padding of the training batch",
        _CONTROLLER,
        "grpo.py:2261, 2524",
    ),
    _timer(
        "prepare_for_generation/total",
        "sync",
        "moving optimizer and model off the device, waking vLLM, sending the weights to it, and its cache",
        _RETURNED,
        "grpo.py:2281",
    ),
    _timer(
        "prepare_for_generation/transfer_and_update_weights",
        WITHIN,
        "the weights alone, between vLLM's waking and its cache",
        _RETURNED,
        "grpo.py:1894",
        required=False,
        detail="sync/transfer",
    ),
    _timer(
        "generation",
        "generate",
        "the rollout with vLLM, the environment that scores it, and putting vLLM to sleep",
        _RETURNED,
        "grpo.py:2333",
    ),
    _timer(
        "reward_calculation",
        "reward",
        "mean and deviation of the scores of each prompt; the scores themselves are made within generation",
        _CONTROLLER,
        "grpo.py:2425",
    ),
    _timer(
        "logprob_inference_prep",
        "score",
        "moving the policy to the device",
        _RETURNED,
        "grpo.py:2601",
        required=False,
        detail="score/prepare",
    ),
    _timer(
        "policy_and_reference_logprobs",
        "score",
        "log-probs of the policy and, where there is a KL coefficient, of the reference too, whose weights the same "
        "workers swap in",
        _RETURNED,
        "grpo.py:2605",
    ),
    _timer("advantage_calculation", "reward", "advantages of all tokens", _CONTROLLER, "grpo.py:2685"),
    _timer(
        "training_prep",
        "train",
        "moving the optimizer to the device",
        _RETURNED,
        "grpo.py:2725",
        detail="train/prepare",
    ),
    _timer("policy_training", "train", "forward, backward and all optimizer steps", _RETURNED, "grpo.py:2730"),
)


def time_step(step: LoggedStep) -> Timed:
    """The step's seconds by NeMo-RL's own timers.

    Raises ConfigError for a timer that is missing, not finite or negative, and for parts longer than the whole.
    """
    names = [timer.name for timer in TIMERS if timer.required and timer.name not in step.values]
    if names:
        raise ConfigError(
            "step {} of the log has no {}: a version that logs by other names?".format(step.number, ", ".join(names))
        )
    whole = 0.0
    phases: Dict[str, float] = {}
    details: Dict[str, float] = {}
    for timer in TIMERS:
        if timer.name not in step.values:
            continue
        seconds = step.values[timer.name]
        if seconds is None or seconds < 0:
            raise ConfigError("step {} of the log took {} in {}".format(step.number, seconds, timer.name))
        if timer.phase == WHOLE:
            whole = seconds
        elif timer.phase not in (None, WITHIN):
            phases[str(timer.phase)] = phases.get(str(timer.phase), 0.0) + seconds
        if timer.detail is not None:
            details[timer.detail] = details.get(timer.detail, 0.0) + seconds
    parts = math.fsum(phases.values())
    if whole <= 0 or parts > whole * (1 + _SLACK_SHARE) + _SLACK_SECONDS:
        raise ConfigError(
            "the phases of step {} of the log take {:.6g} s, the step {:.6g} s".format(step.number, parts, whole)
        )
    return Timed(whole, phases, details)
