"""Weight synchronisation: what an engine waits for to get new weights, on the training devices or on its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from suite.planner.jobs import Column

if TYPE_CHECKING:
    from suite.planner.rl_iteration import RLWork

#: Tensors of a block that are handed over one by one: norms, attention, MLP; three for each expert.
TENSORS, EXPERT_TENSORS = 9, 3


def sync_seconds(work: RLWork, q: Mapping[str, float]) -> Column:
    """Seconds to give the engine new weights, with its sleep and wake where it shares the devices.

    Between devices each of the engine's receives its own part, over the network where both sides do not stand in one
    node.
    """
    jobs, gen = work.jobs, work.generation
    whole = 2 * np.asarray(work.weights, dtype=float)
    tensors = jobs.layers * (TENSORS + np.where(jobs.experts > 1, EXPERT_TENSORS * jobs.experts, 0))
    quantised = np.where(np.asarray(gen.weight_bytes) < 2, whole / gen.devices / q["convert_rate"], 0)
    shared = q["wake_fixed"] + whole / np.asarray(gen.tensor) / q["wake_rate"]
    one_by_one = np.where(np.asarray(work.one_by_one) > 0, q["send_tensor"], 0) * tensors
    near = jobs.devices + np.asarray(gen.devices) <= jobs.node_devices
    received = whole / np.asarray(gen.tensor) / np.where(near, jobs.link, jobs.network)
    sent = q["send_fixed"] + whole / q["send_rate"] + received + one_by_one
    return np.where(np.asarray(work.colocated) > 0, shared, sent) + quantised
