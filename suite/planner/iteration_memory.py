"""Peak memory of one iteration on the fullest device, by phase and part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from suite.planner.formulas.activations import kv_cache_bytes
from suite.planner.formulas.engine import BATCHED_TOKENS, MOST_AT_ONCE, pool_bytes
from suite.planner.formulas.pipeline import in_flight, micro_batches
from suite.planner.formulas.recipes import megatron_bytes, zero_bytes
from suite.planner.iteration import Iterations
from suite.planner.jobs import Column
from suite.planner.memory import OUTSIDE_ALLOCATOR, layer_bytes
from suite.planner.profiles import Profile

PARTS = (
    "weights",
    "reference",
    "optimizer states",
    "gradients",
    "activations",
    "logits",
    "KV cache",
    "generation engine",
    "gathered layers",
    "fragmentation",
    "outside the allocator",
)
#: DeepSpeed reduces gradients in buckets of at most this many elements, 16 bit (its default).
_BUCKET = 5e8
#: An optimizer step of DeepSpeed casts a shard's 16-bit gradients to fp32, under ZeRO-3 at most this many at once
#: (``sub_group_size``).
_SUB_GROUP = 1e9
#: Before that it takes the norm of one gradient after the other in fp64 (``get_norm_dtype``).
_NORM_BYTES = 8
#: Megatron clips one fp32 gradient after the other through a copy, without Apex and Transformer Engine.
_CLIP_BYTES = 4
#: ZeRO-3 keeps parameters gathered that backward needs again within 1e9 elements, so half as many behind which the
#: forward pass ends, and fetches 5e7 ahead (``max_reuse_distance`` and ``prefetch_bucket_size``, its defaults).
_LIVE = 5.5e8
#: Bytes per logit in score and training: 16-bit and fp32 copies, log-softmax.
_SCORE_LOGITS = 10


def iteration_memory(work: Iterations, p: Mapping[str, float], profile: Profile) -> dict[str, Column]:
    """Bytes by part in the most demanding phase. Never below the memory floor of the same layout."""
    phases = phase_memory(work, p, profile)
    totals = np.array([sum(parts.values()) for parts in phases.values()])
    most = totals.argmax(axis=0)
    return {kind: np.choose(most, [parts[kind] for parts in phases.values()]) for kind in PARTS}


def phase_memory(work: Iterations, p: Mapping[str, float], profile: Profile) -> dict[str, dict[str, Column]]:
    """Bytes by phase and part; ``step`` is the end of training, when the optimizer updates."""
    names = ("generate", "score", *(["reference"] if work.swapped else []), "train", "step")
    states = _states(work, profile)
    phases = {name: _phase(work, p, states, name) for name in names}
    if work.engine:
        standing = ("generate",) if work.engine_sleeps else names
        for name in standing:
            phases[name]["generation engine"] = states["whole"]
        others = np.max([np.asarray(sum(phases[name].values())) for name in standing], axis=0)
        wanted, longest = _engine_cache(work)
        for name in standing:
            phases[name]["KV cache"] = pool_bytes(work.jobs.capacity - others, wanted, longest)
    return phases


def engine_waves(work: Iterations, p: Mapping[str, float], profile: Profile) -> Column:
    """How many times over an engine's samples would fill its pool or its places, at their fullest moment; 1 or more."""
    pool = phase_memory(work, p, profile)["generate"]["KV cache"]
    needed = kv_cache_bytes(1, work.decoding.held, *_spread(work))
    return np.maximum(1, np.maximum(needed / pool, work.rollouts / MOST_AT_ONCE))


def _engine_cache(work: Iterations) -> tuple[Column, Column]:
    """Bytes of keys and values: of all samples that run at once, each at its end, and of the longest one."""
    decoding = work.decoding
    at_once = decoding.whole * np.minimum(1, MOST_AT_ONCE / work.rollouts)
    longest = decoding.prompt + decoding.new
    return kv_cache_bytes(1, at_once, *_spread(work)), kv_cache_bytes(1, longest, *_spread(work))


def _spread(work: Iterations) -> tuple[Column, Column, Column, Column]:
    """Layers of a device, width of all heads, share of key-value heads, and over how many devices these are divided."""
    jobs = work.jobs
    return jobs.layers / jobs.pipeline, jobs.width, jobs.kv_share, jobs.tensor


def _phase(work: Iterations, p: Mapping[str, float], states: Mapping[str, Column], phase: str) -> dict[str, Column]:
    jobs = work.largest
    zero = np.zeros(len(jobs))
    count = micro_batches(jobs.global_batch, jobs.data, jobs.micro_batch)
    layer, depth = layer_bytes(jobs, p), jobs.layers / jobs.pipeline
    shown = jobs.tokens * jobs.head_share * jobs.vocab / jobs.tensor
    parts: dict[str, Column] = {
        "weights": states["weights"],
        "reference": states["reference"],
        "optimizer states": states["optimizer"],
        "generation engine": zero,
    }
    if phase == "reference":
        # In fp32, in the place of the policy's weights, of which the optimizer's buffer keeps a copy.
        parts["reference"] = np.maximum(parts["reference"], 4 * work.swapped / jobs.tensor)
    parts["gradients"] = states["buffers"] + states.get(f"to {phase}", zero)
    if phase == "step":
        parts |= dict.fromkeys(("activations", "logits", "KV cache"), zero)
    elif phase == "generate":
        parts |= _generation(work)
    else:
        each = max(_SCORE_LOGITS, p["logit_bytes"]) if phase == "train" else _SCORE_LOGITS
        held = in_flight(jobs.pipeline, jobs.chunks, count, jobs.pipeline - 1)
        kept = layer["kept"] * depth * jobs.trained_share * held
        parts["activations"] = kept + layer["again"] if phase == "train" else layer["once"]
        parts["logits"] = shown * each
        parts["KV cache"] = zero
    parts["gathered layers"] = states["gathered"]
    if phase == "generate" and not work.engine:
        parts["gathered layers"] = np.where(work.gathers_once, states["whole"], states["gathered"])
    parts["fragmentation"] = p["fragmentation"] * np.asarray(sum(parts.values()))
    parts["outside the allocator"] = np.full(len(jobs), float(OUTSIDE_ALLOCATOR))
    return parts


def _generation(work: Iterations) -> dict[str, Column]:
    """What generating needs beside weights: every row as long as the longest in the training stack's own loop, while an
    engine takes tokens in portions."""
    jobs, decoding = work.jobs, work.decoding
    tokens, rows = work.rollouts * decoding.prompt, work.rollouts
    if work.engine:
        tokens, rows = np.minimum(decoding.prompts, BATCHED_TOKENS), np.minimum(rows, MOST_AT_ONCE)
    cache = kv_cache_bytes(work.rollouts, decoding.prompt + decoding.new, *_spread(work))
    return {
        "activations": 2 * 4 * tokens * jobs.hidden,
        "logits": 2 * 4 * rows * jobs.vocab / jobs.tensor,
        "KV cache": np.zeros(len(jobs)) if work.engine else cache,
    }


def _states(work: Iterations, profile: Profile) -> dict[str, Column]:
    """Bytes that outlive a phase, and the gradients: of the pipeline's first or last stage, whichever holds more.

    ``buffers`` of gradients stand throughout, ``to train`` and ``to step`` come beside them in those phases.
    """
    make = _megatron_end if profile.gradient_buffer else _zero_end
    first, last = (make(work, profile, end) for end in ("first", "last"))
    fuller = sum(last.values()) > sum(first.values())
    states = {name: np.where(fuller, last[name], first[name]) for name in first}
    whole = 2 * (work.held["trainable_first"] + work.held["frozen_first"])
    return {**states, "gathered": _gathered(work), "whole": whole}


def _held(work: Iterations, end: str) -> tuple[Column, Column, Column, Column]:
    """Parameters that train, frozen ones, the reference's and the critic's, of experts a rank's own."""
    kinds = (work.held[f"{kind}_{end}"] for kind in ("trainable", "frozen", "reference", "critic"))
    trainable, frozen, reference, critic = kinds
    return trainable, frozen, reference, critic


def _megatron_end(work: Iterations, profile: Profile, end: str) -> dict[str, Column]:
    jobs, (trainable, frozen, reference, critic) = work.jobs, _held(work, end)
    shards = np.maximum(1, jobs.data)
    weights, gradients, optimizer = megatron_bytes(jobs.zero_stage >= 1, shards, 0.0)
    # Sharded states are divided by all data parallel ranks, over which experts are spread already.
    divided = np.where(jobs.zero_stage >= 1, work.held[f"sharded_{end}"], trainable)
    share = divided / np.where(jobs.zero_stage >= 1, shards, 1)
    left = np.where(work.offload_optimizer > 0, profile.offload_leaves * share, optimizer * (divided + critic))
    return {
        "weights": weights * (trainable + frozen + critic),
        "reference": weights * reference,
        "optimizer": left,
        "buffers": gradients * (trainable + critic),
        "to step": _CLIP_BYTES * np.minimum(share, work.largest_tensor / jobs.tensor),
    }


def _zero_end(work: Iterations, _profile: Profile, end: str) -> dict[str, Column]:
    """DeepSpeed's ZeRO. Its ``buffers`` are ZeRO-3's bucket and its partition of gradients (other stages free theirs),
    and for ZeRO-1 and 2 with an offloaded optimizer the buffer through which gradients go to the host."""
    jobs, (trainable, frozen, reference, critic) = work.jobs, _held(work, end)
    stage, shards = jobs.zero_stage, np.maximum(1, jobs.data)
    weights, gradients, optimizer = zero_bytes(stage, shards)
    kept = np.where(work.offload_parameters > 0, 0, 1)
    host = np.where(work.offload_optimizer > 0, 0, 1)
    # ZeRO-1 reduces once a step: until then whole gradients are on the device, also where the optimizer is not.
    stays = np.where(stage <= 1, 1, host)
    own = gradients * (trainable + critic) * stays
    bucket, of_critic = (2 * np.minimum(_BUCKET, count) for count in (trainable, critic))
    # Two buckets take turns where reduction overlaps backward, and what several ranks own of one is copied together.
    turns = np.where((jobs.data > 1) & (stage > 0) & (stage < 3), 2, 1)
    copied = np.where(jobs.data > 1, 1, 0)
    largest = np.maximum(trainable, critic)
    share = largest / np.where(stage >= 1, shards, 1)
    # From ZeRO-1 on a partition's gradients (2 bytes) are joined before they are cast (4).
    cast = np.where(stage >= 1, 6, 4) * np.where(stage >= 3, np.minimum(share, _SUB_GROUP), share)
    norm = _NORM_BYTES * np.minimum(share, work.largest_tensor)
    standing = np.where(stage >= 3, own + bucket + of_critic, 2 * work.largest_tensor * (1 - host))
    return {
        "weights": weights * (trainable + frozen + critic) * kept,
        "reference": weights * reference * kept,
        "optimizer": optimizer * (trainable + critic) * host,
        "buffers": standing,
        "to train": np.where(stage >= 3, 0, own + turns * bucket) + copied * bucket + norm * (1 - host),
        "to step": np.where(stage >= 3, 0, own * host) + np.maximum(cast * host, norm * np.where(stage >= 3, 1, host)),
    }


def _gathered(work: Iterations) -> Column:
    """Under ZeRO-3: the weights that are whole at one moment, and the gradient of the largest matrix."""
    jobs = work.jobs
    whole = np.maximum(work.held["trainable_first"] + work.held["frozen_first"], work.held["reference_first"])
    live = np.minimum(whole, _LIVE + work.largest_tensor)
    split = (jobs.zero_stage >= 3) & ((jobs.data > 1) | (work.offload_parameters > 0))
    return np.where(split, 2 * live + 2 * work.largest_tensor, 0.0)
