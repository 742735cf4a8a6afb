"""A tied output head is not sent to vLLM, whose own is the embedding already.

Imported in verl's processes by its own door, a model's ``external_lib``. verl sends weights in buckets; where
embeddings are tied the head comes last, and is the embedding once more. vLLM leaves it out, and refuses a bucket
that has it without the embedding (0.32, ``model_executor/models/utils.py``, ``_check_skipped_aliases``). Without this a
model of more than one bucket fails with its first weights, on a GPU too.
"""

import sys
from typing import Any, Iterable, Iterator, Tuple

HEAD = "lm_head.weight"
#: loaded before any model's configuration is read, in the processes that train
_ENGINES = "verl.workers.engine.fsdp.transformer_impl"

Named = Tuple[str, Any]


def without_head(weights: Iterable[Named]) -> Iterator[Named]:
    """All but the head, in their order."""
    return (each for each in weights if each[0] != HEAD)


def install(engine: Any) -> None:
    """Have an engine's class give the weights of models with tied embeddings without their head."""
    own = engine.get_per_tensor_param

    def get_per_tensor_param(self: Any, *arguments: Any, **options: Any) -> Tuple[Any, Any]:
        weights, adapter = own(self, *arguments, **options)
        is_tied = self.module.config.tie_word_embeddings
        return without_head(weights) if is_tied else weights, adapter

    engine.get_per_tensor_param = get_per_tensor_param


if _ENGINES in sys.modules:
    install(sys.modules[_ENGINES].FSDPEngine)  # type: ignore[attr-defined]
