"""What AReaL's timers hold (1.0.4, areal/trainer/rl_trainer.py; ``record_timing`` is in
areal/utils/stats_tracker.py:85).

There is none of the whole step, so an iteration is from one commit of statistics to the next. AReaL logs the mean of
what is timed more than once in a step, and how often; the reader multiplies.
"""

from typing import Any, Optional

from suite.worker.trainers.logged.timers import Timer

_ANSWERS = "the answers of all workers; no device is synchronised for the clock"
_NOTHING = "nothing with max_head_offpolicyness 0, which the suite sets"


def _timer(name: str, phase: Optional[str], includes: str, line: str, **options: Any) -> Timer:
    where = "areal/trainer/rl_trainer.py:{}".format(line)
    return Timer("timeperf/" + name, phase, includes, _ANSWERS, _NOTHING, where, **options)


TIMERS = (
    _timer(
        "rollout",
        "generate",
        "submitting the prompts and waiting for all their samples; each is scored as it comes",
        "601",
    ),
    _timer("ref_logp", "reference", "log-probs of the reference", "643", required=False),
    _timer("recompute_logp", "score", "log-probs of the policy", "682"),
    _timer("compute_advantage", "reward", "normalised scores and the advantages of all tokens", "695"),
    _timer("train_step", "train", "forward, backward and all optimizer steps of the actor", "715"),
    _timer(
        "update_weights",
        "sync",
        "writing the weights to a folder and having the engines of generation read them",
        "760",
    ),
    _timer(
        "rollout_onload", None, "waking vLLM, before generation and once more for an evaluation", "501", required=False
    ),
    _timer("rollout_offload", None, "putting vLLM to sleep, as often", "484", required=False),
    _timer("actor_onload", None, "moving the actor to the device", "442", required=False),
    _timer("actor_offload", None, "moving the actor off the device", "452", required=False),
    _timer("ref_onload", None, "moving the reference to the device", "442", required=False),
    _timer("ref_offload", None, "moving the reference off the device", "452", required=False),
    _timer("save", None, "asking whether to save, which is never", "780", required=False),
    _timer(
        "checkpoint_for_recover", None, "asking whether to write a checkpoint, which is never", "790", required=False
    ),
    _timer("eval", None, "asking whether to evaluate, which is never", "808", required=False),
    _timer("clear_batches", None, "forgetting the batch on all workers", "826", required=False),
)
