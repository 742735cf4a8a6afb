"""What SkyRL's timers hold (0.4.0, skyrl/train/trainer.py; the class is in skyrl/train/utils/utils.py:49).

They read ``time.time``, which can be set: a step during which it is set back has no time, and is refused.
"""

from typing import Any, Optional

from suite.worker.trainers.logged.timers import WHOLE, WITHIN, Timer

_RETURNED = "the results of Ray's workers, or vLLM's answers; no device is synchronised for the clock"
_CONTROLLER = "nothing: the controller's own work"


def _timer(name: str, phase: Optional[str], includes: str, waits: str, line: str, **options: Any) -> Timer:
    where = "skyrl/train/trainer.py:{}".format(line)
    return Timer("timing/" + name, phase, includes, waits, "nothing", where, **options)


TIMERS = (
    _timer(
        "step",
        WHOLE,
        "the step with the weights that it sends for the next one; not the first sending of weights, nor logging",
        _RETURNED,
        "333",
    ),
    _timer(
        "generate",
        "generate",
        "the rollout with vLLM and each sample's environment, which scores it; not putting vLLM to sleep behind it",
        _RETURNED,
        "352",
    ),
    _timer(
        "postprocess_generator_output", "reward", "the scores, spread over tokens, and their means", _CONTROLLER, "382"
    ),
    _timer("convert_to_training_input", None, "padding and masks of the training batch", _CONTROLLER, "411"),
    _timer(
        "fwd_logprobs_values_reward",
        "score",
        "log-probs of the reference, where there is a KL coefficient, and of the policy, with moving each to the "
        "device and off it",
        _RETURNED,
        "415",
    ),
    _timer("compute_advantages_and_returns", "reward", "advantages of all tokens", _CONTROLLER, "424"),
    _timer(
        "train_critic_and_policy",
        "train",
        "moving the policy to the device, forward, backward and all optimizer steps",
        _RETURNED,
        "441",
    ),
    _timer("policy_train", WITHIN, "the policy's part of training: all of it", _RETURNED, "1599", required=False),
    _timer(
        "sync_weights",
        "sync",
        "moving the policy's optimizer off the device, waking vLLM, the weights, and its cache",
        _RETURNED,
        "484",
    ),
    _timer(
        "sync_weights_only_transfer",
        WITHIN,
        "the weights alone",
        _RETURNED,
        "490",
        required=False,
        detail="sync/transfer",
    ),
)
