"""Parameters of which ZeRO-3 has given each rank its part: made whole again, and counted whole."""

from contextlib import nullcontext
from typing import Any, ContextManager, Sequence


def whole(parameters: Sequence[Any], writes: bool = False) -> ContextManager[Any]:
    """A context in which all of these are whole on every rank. ``writes``: changes of rank 0 reach the others."""
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(list(parameters), modifier_rank=0 if writes else None)


def whole_elements(parameter: Any) -> int:
    return int(getattr(parameter, "ds_numel", parameter.numel()))
