"""The step log of NeMo-RL (v0.7.0, nemo_rl/algorithms/grpo.py): its steps, their counts, and the timers by which a
step's seconds become phases.

What each timer holds and waits for, the table of docs/trainers/nemo-rl.md says.
"""

import json
import math
import os
from typing import Any, Dict, Iterator, Optional, Tuple

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
_TRANSFER = _PREFIX + "prepare_for_generation/transfer_and_update_weights"
_PREPARE_SCORE, _PREPARE_TRAIN = _PREFIX + "logprob_inference_prep", _PREFIX + "training_prep"


#: ``step``: its number from 1; ``values`` by name, null where one was not finite
Step = Dict[str, Any]


def read_steps(path: str) -> Iterator[Optional[Step]]:
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
            step, text = json.loads(text.decode("utf-8")), b""
            if step["step"] != number:
                raise ConfigError("the step log is of step {} where {} follows".format(step["step"], number))
            yield step
            number += 1


def check_counts(step: Step, manifest: Dict[str, Any]) -> Dict[str, Optional[int]]:
    """The counts of an iteration's event, null what is not logged. Samples are turns of one each; tokens are means over
    them, and a sum of all that is trained on.

    Raises ConfigError, with every number, unless they are the manifest's.
    """
    values = {name: math.nan if value is None else value for name, value in step["values"].items()}
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
        raise ConfigError("step {} of the log was not the manifest's work: {}".format(step["step"], "; ".join(wrong)))
    return {**dict.fromkeys(_UNKNOWN), **{name: asked[name] for name in logged}}


#: The phase that each is part of; ``whole``; ``within`` another timer, and so in no sum; null: NeMo-RL's own work, in
#: ``other``.
TIMERS: Dict[str, Optional[str]] = {
    _PREFIX + "total_step_time": WHOLE,
    _PREFIX + "data_processing": None,
    _PREFIX + "prepare_for_generation/total": "sync",
    _TRANSFER: WITHIN,
    _PREFIX + "generation": "generate",
    _PREFIX + "reward_calculation": "reward",
    _PREPARE_SCORE: "score",
    _PREFIX + "policy_and_reference_logprobs": "score",
    _PREFIX + "advantage_calculation": "reward",
    _PREPARE_TRAIN: "train",
    _PREFIX + "policy_training": "train",
}
_OPTIONAL = (_TRANSFER, _PREPARE_SCORE)
#: parts of phases, as an event has them
_DETAILS = {_TRANSFER: "sync/transfer", _PREPARE_SCORE: "score/prepare", _PREPARE_TRAIN: "train/prepare"}


def time_step(step: Step) -> Tuple[float, Dict[str, float], Dict[str, float]]:
    """The step's seconds by NeMo-RL's own timers: the whole, by phase, and by ``phase/part``.

    Raises ConfigError for a timer that is missing, not finite or negative, and for parts longer than the whole.
    """
    missing = [name for name in TIMERS if name not in _OPTIONAL and name not in step["values"]]
    if missing:
        raise ConfigError(
            "step {} of the log has no {}: a version that logs by other names?".format(step["step"], ", ".join(missing))
        )
    phases: Dict[Optional[str], float] = {}
    taken = {name: step["values"][name] for name in TIMERS if name in step["values"]}
    for name, seconds in taken.items():
        if seconds is None or seconds < 0:
            raise ConfigError("step {} of the log took {} in {}".format(step["step"], seconds, name))
        phases[TIMERS[name]] = phases.get(TIMERS[name], 0.0) + seconds
    whole = phases.pop(WHOLE)
    for no_phase in (WITHIN, None):
        phases.pop(no_phase, None)
    parts = math.fsum(phases.values())
    if whole <= 0 or parts > whole * (1 + _SLACK_SHARE) + _SLACK_SECONDS:
        raise ConfigError(
            "the phases of step {} of the log take {:.6g} s, the step {:.6g} s".format(step["step"], parts, whole)
        )
    return whole, phases, {part: taken[name] for name, part in _DETAILS.items() if name in taken}
