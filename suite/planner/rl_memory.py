"""Peak memory of either side of an RL iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from suite.planner.jobs import Column, Jobs
from suite.planner.memory import GIB, OUTSIDE_ALLOCATOR, held_parameters, layer_bytes, memory_parts
from suite.planner.timing import local_experts, local_parameters

if TYPE_CHECKING:
    from suite.planner.rl_iteration import Generation, RLWork

#: What an engine needs of its share beside weights and cache: activations of its largest batch, captured graphs.
ENGINE_WORKSPACE = 3 * GIB
#: Tokens whose logits exist at once where the loss takes them in portions.
LOSS_PORTION = 512


def training_memory(work: "RLWork", memory: Mapping[str, float], q: Mapping[str, float]) -> Column:
    """Bytes of the training side's peak, as an allocator shows it: states, activations (but their block inputs where
    they are offloaded), logits (in portions where ``chunked_loss`` is 1), and a reference in 16 bit where it stays."""
    jobs = work.jobs
    parts = memory_parts(jobs, memory)
    layer = layer_bytes(jobs, memory)
    again = np.where(jobs.recompute == 3, layer["again"], 0)
    kept = np.where(np.asarray(work.offloaded) > 0, 0, np.maximum(0, parts["activations"] - again))
    first, _ = held_parameters(jobs)
    counted_twice = np.where((jobs.pipeline == 1) & (jobs.gated > 0) & (jobs.tables < 2), 1, 0)
    tied = 1 - counted_twice * jobs.vocab * jobs.hidden / jobs.tensor / first
    # Under adapters FSDP keeps the frozen weights in fp32 too, where it trains in mixed precision.
    parts["weights"] = parts["weights"] * np.where((jobs.low_rank > 0) & (jobs.zero_stage >= 3), 2, 1)
    for name in ("weights", "gradients", "optimizer states"):
        parts[name] = parts[name] * tied
    portion = np.minimum(1, LOSS_PORTION / np.maximum(jobs.tokens, 1))
    parts["logits"] = parts["logits"] * np.where(np.asarray(work.chunked_loss) > 0, portion, q["logits"])
    parts["activations"] = kept + q["again"] * np.where(jobs.experts > 1, q["again_experts"], 1) * again
    parts["reference"] = 2 * _share(jobs) * np.asarray(work.reference_held, dtype=float)
    return np.asarray(sum(parts.values()))


def _share(jobs: Jobs) -> Column:
    """Parameters of one training device, sharded where weights are."""
    shards = np.where(jobs.zero_stage >= 3, jobs.data * jobs.context, 1)
    experts = local_experts(jobs)
    spread = np.maximum(1, shards / jobs.expert_parallel)
    return (local_parameters(jobs) - experts) / shards + experts / spread


def pool_bytes(jobs: Jobs, gen: "Generation") -> Column:
    """Bytes that an engine has for keys and values on each device; 0 or less where its weights leave none."""
    weights = np.asarray(gen.weight_bytes) * whole_parameters(jobs) / np.asarray(gen.tensor)
    return np.asarray(gen.pool_share) * jobs.capacity - weights - ENGINE_WORKSPACE


def whole_parameters(jobs: Jobs) -> Column:
    """Parameters of the whole model: blocks with all experts, and the vocabulary's matrices."""
    return jobs.layers * jobs.elements + jobs.tables * jobs.vocab * jobs.hidden


def generation_memory(work: "RLWork", pool: Column) -> Column:
    """Bytes of the generating side: the engine's share of the device, or more where its weights do not fit into it."""
    jobs, gen = work.jobs, work.generation
    least = np.asarray(gen.weight_bytes) * whole_parameters(jobs) / np.asarray(gen.tensor) + ENGINE_WORKSPACE
    return np.where(pool > 0, np.asarray(gen.pool_share) * jobs.capacity, least) + OUTSIDE_ALLOCATOR
