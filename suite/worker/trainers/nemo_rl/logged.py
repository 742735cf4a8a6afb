"""The step log of NeMo-RL (v0.7.0, nemo_rl/algorithms/grpo.py): its steps, their counts, and the timers by which a
step's seconds become phases.

What each timer holds and waits for, the table of docs/trainers/nemo-rl.md says.
"""

import json
import math
import os
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional

from suite.worker.asked import expected_counts
from suite.worker.rank import ConfigError

#: Counts of an iteration's event that no log has.
_UNKNOWN = ("padded_tokens", "optimizer_steps", "trainable_parameters", "total_parameters")
#: Means of many samples are logged as floats of 32 bits.
_ROUNDING = 1e-5
#: Beside the phases: the timer of the whole step, and timers that lie within another.
WHOLE, WITHIN = "whole", "within"
#: Timers are read one after the other, so that parts may add up to a little more than the whole.
_SLACK_SHARE, _SLACK_SECONDS = 0.01, 0.001
_PREFIX = "timing/train/"


@dataclass(frozen=True)
class LoggedStep:
    """One step as the trainer told it: its number from 1, and values by name, null where one was not finite."""

    number: int
    values: Mapping[str, Optional[float]]


def read_steps(path: str) -> Iterator[Optional[LoggedStep]]:
    """The steps of a log that grows, each once: None where no further one is complete yet.

    Raises ConfigError for a step out of order.
    """
    while not os.path.exists(path):
        yield None
    with open(path, "rb") as file:
        number, text = 1, b""
        while True:
            text += file.readline()
            if not text.endswith(b"\n"):
                yield None
                continue
            line, text = json.loads(text.decode("utf-8")), b""
            if line["step"] != number:
                raise ConfigError("the step log is of step {} where {} follows".format(line["step"], number))
            yield LoggedStep(number, line["values"])
            number += 1


def check_counts(step: LoggedStep, manifest: Dict[str, Any]) -> Dict[str, Optional[int]]:
    """The counts of an iteration's event, null what is not logged. Samples are turns of one each; tokens are means over
    them, and a sum of all that is trained on.

    Raises ConfigError, with every number, unless they are the manifest's.
    """
    values = {name: math.nan if value is None else value for name, value in step.values.items()}
    samples = values.get("train/total_turns", math.nan)
    logged = {
        "samples": samples,
        "prompt_tokens": samples * values.get("train/mean_prompt_length", math.nan),
        "response_tokens": samples * values.get("train/mean_gen_tokens_per_sample", math.nan),
        "trained_tokens": values.get("train/total_num_tokens", math.nan),
    }
    asked = expected_counts(manifest["workload"], manifest["work"])
    wrong = [
        "{} {} wanted, {:.12g} logged".format(name, asked[name], number)
        for name, number in logged.items()
        if not math.isclose(number, asked[name], rel_tol=_ROUNDING)
    ]
    if wrong:
        raise ConfigError("step {} of the log was not the manifest's work: {}".format(step.number, "; ".join(wrong)))
    return {**dict.fromkeys(_UNKNOWN), **{name: asked[name] for name in logged}}


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
