"""Host memory that offloading takes."""

from __future__ import annotations

import numpy as np

from suite.planner.jobs import Column
from suite.planner.work import Training

#: fp32 weights and gradients, both moments of Adam, of each trained parameter: what Megatron's HybridDeviceOptimizer
#: keeps there, and DeepSpeed by its own estimate (``estimate_zero2_model_states_mem_needs``, without that estimate's
#: factor of 1.5 for buffers)
OPTIMIZER_BYTES = 16
#: DeepSpeed's beside them: the 16-bit weights on their way to the device (ZeRO-1 and 2), or 16-bit gradients (ZeRO-3)
BUFFER_BYTES = 2
#: and under ZeRO-2 the 16-bit gradients that further micro batches are added to
ACCUMULATED_BYTES = 2
#: One gradient of each rank is on its way, and one that two ranks share is accumulated whole by both (ZeRO-1 and 2).
TENSOR_BYTES = 4
#: 16-bit weights where parameters are offloaded too (``estimate_zero3_model_states_mem_needs``: 18)
WEIGHT_BYTES = 2


def host_memory(work: Training) -> Column:
    """Bytes that every candidate keeps in host memory, over all its nodes; 0 where nothing is offloaded.

    What the allocator of pinned memory adds is left out.
    """
    stage, ranks = work.jobs.zero_stage, work.jobs.devices
    buffers = (BUFFER_BYTES + ACCUMULATED_BYTES * (stage == 2)) * work.trained
    buffers = buffers + TENSOR_BYTES * work.largest_tensor * ranks * (stage < 3)
    states = OPTIMIZER_BYTES * work.trained + np.where(work.jobs.zero_engine > 0, buffers, 0)
    weights = WEIGHT_BYTES * work.replica * (work.offload_parameters > 0)
    return states * (work.jobs.offload_optimizer > 0) + weights
