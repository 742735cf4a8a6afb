"""Peak memory of one PPO iteration on the fullest device, by phase and part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from suite.planner.formulas.activations import kv_cache_bytes
from suite.planner.formulas.pipeline import in_flight, micro_batches
from suite.planner.formulas.recipes import megatron_bytes, zero_bytes
from suite.planner.iteration import Iterations
from suite.planner.jobs import Column, Jobs
from suite.planner.memory import OUTSIDE_ALLOCATOR, layer_bytes

PARTS = (
    "weights",
    "reference",
    "optimizer states",
    "gradients",
    "activations",
    "logits",
    "KV cache",
    "gathered layers",
    "fragmentation",
    "outside the allocator",
)
#: DeepSpeed reduces gradients in buckets of this many elements, 16 bit, allocated whatever the model's size.
_BUCKET = 5e8
#: An optimizer step of DeepSpeed casts a shard's 16-bit gradients to fp32 first, under ZeRO-3 at most this many at once
#: (its documentation counts 4 bytes a parameter for it: "Memory Requirements"; ``sub_group_size``).
_SUB_GROUP = 1e9
#: Bytes per logit in score and training: 16-bit and fp32 copies, log-softmax.
_SCORE_LOGITS = 10


def iteration_memory(work: Iterations, p: Mapping[str, float], gradient_buffer: bool) -> dict[str, Column]:
    """Bytes by part in the most demanding phase. Never below the memory floor of the same layout."""
    names = ("generate", "score", *(["reference"] if work.swapped else []), "train", "step")
    phases = {name: _phase(work, p, gradient_buffer, name) for name in names}
    totals = np.array([sum(parts.values()) for parts in phases.values()])
    most = totals.argmax(axis=0)
    return {kind: np.choose(most, [phases[name][kind] for name in phases]) for kind in PARTS}


def _phase(work: Iterations, p: Mapping[str, float], gradient_buffer: bool, phase: str) -> dict[str, Column]:
    jobs = work.jobs
    zero = np.zeros(len(jobs))
    states = _states(work, gradient_buffer)
    count = micro_batches(jobs.global_batch, jobs.data, jobs.micro_batch)
    layer, depth = layer_bytes(jobs, p), jobs.layers / jobs.pipeline
    shown = jobs.tokens * jobs.head_share * jobs.vocab / jobs.tensor
    parts: dict[str, Column] = {
        "weights": states["weights"],
        "reference": states["reference"],
        "optimizer states": states["optimizer"],
    }
    if phase == "reference":
        # In fp32, in the place of the policy's weights, of which the optimizer's buffer keeps a copy.
        parts["reference"] = np.maximum(parts["reference"], 4 * work.swapped / jobs.tensor)
    parts["gradients"] = states["gradients"] if phase in ("train", "step") or gradient_buffer else zero
    if phase == "step":
        parts["gradients"] = parts["gradients"] + states["cast"]
        parts |= dict.fromkeys(("activations", "logits", "KV cache"), zero)
    elif phase == "generate":
        parts["activations"] = 2 * 4 * work.rollouts * work.prompt * jobs.hidden
        parts["logits"] = 2 * 4 * work.rollouts * jobs.vocab / jobs.tensor
        width = (work.rollouts, work.prompt + work.new, depth, jobs.hidden, jobs.kv_share, jobs.tensor)
        parts["KV cache"] = kv_cache_bytes(*width)
    else:
        each = max(_SCORE_LOGITS, p["logit_bytes"]) if phase == "train" else _SCORE_LOGITS
        held = in_flight(jobs.pipeline, jobs.chunks, count, jobs.pipeline - 1)
        kept = layer["kept"] * depth * jobs.trained_share * held
        parts["activations"] = kept + layer["again"] if phase == "train" else layer["once"]
        parts["logits"] = shown * each
        parts["KV cache"] = zero
    parts["gathered layers"] = states["gathered"]
    if phase == "generate":
        parts["gathered layers"] = np.where(work.gathers_once, states["whole"], states["gathered"])
    parts["fragmentation"] = p["fragmentation"] * np.asarray(sum(parts.values()))
    parts["outside the allocator"] = np.full(len(jobs), float(OUTSIDE_ALLOCATOR))
    return parts


def _states(work: Iterations, gradient_buffer: bool) -> dict[str, Column]:
    """Bytes that outlive a phase, and the gradients: of the pipeline's first or last stage, whichever holds more."""
    first, last = (_end(work, gradient_buffer, end) for end in ("first", "last"))
    fuller = sum(last.values()) > sum(first.values())
    states = {name: np.where(fuller, last[name], first[name]) for name in first}
    whole = 2 * (work.held["trainable_first"] + work.held["frozen_first"]) / work.jobs.tensor
    return {**states, "gathered": _gathered(work.jobs, work.offload_parameters == 0), "whole": whole}


def _end(work: Iterations, gradient_buffer: bool, end: str) -> dict[str, Column]:
    jobs = work.jobs
    trainable, frozen, reference, critic = (
        work.held[f"{kind}_{end}"] / jobs.tensor for kind in ("trainable", "frozen", "reference", "critic")
    )
    shards = np.maximum(1, jobs.data)
    if gradient_buffer:
        weights, gradients, optimizer = megatron_bytes(jobs.zero_stage >= 1, shards, 0.0)
    else:
        weights, gradients, optimizer = zero_bytes(jobs.zero_stage, shards)
    share = np.maximum(trainable, critic) / np.where(jobs.zero_stage >= 1, shards, 1)
    cast = np.where(jobs.zero_stage >= 3, np.minimum(share, _SUB_GROUP), share) * (0 if gradient_buffer else 4)
    kept = np.where(work.offload_parameters > 0, 0, 1)
    host = np.where(work.offload_optimizer > 0, 0, 1)
    bucket = 0.0 if gradient_buffer else 2 * np.minimum(_BUCKET, trainable)
    return {
        "weights": weights * (trainable + frozen + critic) * kept,
        "reference": weights * reference * kept,
        "optimizer": optimizer * (trainable + critic) * host,
        "gradients": gradients * (trainable + critic) * host + bucket,
        "cast": cast * host,
    }


def _gathered(jobs: Jobs, on_device: Column) -> Column:
    """Under ZeRO-3 the largest module is fetched whole with its gradient: a block, or the embedding."""
    largest = np.maximum(jobs.elements, jobs.vocab * jobs.hidden) / jobs.tensor
    split = (jobs.zero_stage >= 3) & ((jobs.data > 1) | ~on_device)
    return np.where(split, 2 * 2 * largest, 0.0)
