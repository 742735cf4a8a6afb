"""Host memory that offloading takes."""

from __future__ import annotations

from suite.planner.iteration import Iterations
from suite.planner.jobs import Column

#: fp32 weights and gradients, both moments of Adam: what DeepSpeed keeps on the host of each trained parameter, by its
#: own estimate (``estimate_zero2_model_states_mem_needs``, without that estimate's factor of 1.5 for buffers)
OPTIMIZER_BYTES = 16
#: 16-bit weights beside them where parameters are offloaded too (``estimate_zero3_model_states_mem_needs``: 18)
WEIGHT_BYTES = 2


def host_memory(work: Iterations) -> Column:
    """Bytes that every candidate keeps in host memory at the least, over all its nodes; 0 where nothing is offloaded.

    Buffers and pinned copies come on top. Offloading backends have neither tensor nor pipeline parallelism, so the
    first stage holds the whole model.
    """
    trainable, frozen, reference, critic = (
        work.held[f"{kind}_first"] for kind in ("trainable", "frozen", "reference", "critic")
    )
    states = OPTIMIZER_BYTES * (trainable + critic) * (work.offload_optimizer > 0)
    return states + WEIGHT_BYTES * (trainable + frozen + reference + critic) * (work.offload_parameters > 0)
