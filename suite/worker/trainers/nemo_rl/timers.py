"""What NeMo-RL's timers hold (v0.7.0, nemo_rl/algorithms/grpo.py; the class is in nemo_rl/utils/timer.py)."""

from typing import Any, Optional

from suite.worker.trainers.logged.timers import WHOLE, WITHIN, Timer

_RETURNED = "the results of Ray's workers in host memory; no device is synchronised for the clock"
_CONTROLLER = "nothing: the controller's own work"
_NOTHING = "nothing"


def _timer(name: str, phase: Optional[str], includes: str, waits: str, line: str, **options: Any) -> Timer:
    where = "nemo_rl/algorithms/{}".format(line)
    return Timer("timing/train/" + name, phase, includes, waits, _NOTHING, where, **options)


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
