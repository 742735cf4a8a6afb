"""A tied output head is not sent to vLLM, whose own is the embedding already.

verl 0.9.1 sends weights in buckets (``bucketed_weight_transfer.py``) by the names of the policy's state, in which a
tied head comes last, as the embedding once more. vLLM leaves it out, and refuses a bucket that has it without the
embedding (0.32, ``model_executor/models/utils.py``, ``_check_skipped_aliases``): a model of more than one bucket would
fail with its first weights, on every device.
"""

from typing import Any, Iterable, Tuple

from suite.worker.trainers.verl.inspection import engines_of

HEAD = "lm_head.weight"
NAME = "verl-tied-head"


def leave_out_head(worker: Any) -> bool:
    """Runs in a worker of verl, before its first weights. Whether the policy's head is tied, and therefore left out."""
    engine = engines_of(worker)["actor"]
    if not engine.module.config.tie_word_embeddings:
        return False
    own = engine.get_per_tensor_param

    def get_per_tensor_param(*arguments: Any, **options: Any) -> Tuple[Iterable[Tuple[str, Any]], Any]:
        weights, adapter = own(*arguments, **options)
        # The head is gathered too, on every rank: that is a collective.
        return (each for each in weights if each[0] != HEAD), adapter

    engine.get_per_tensor_param = get_per_tensor_param
    return True
