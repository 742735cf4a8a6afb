"""Peak memory of a training job's fullest device, by part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from suite.planner.formulas import activations
from suite.planner.formulas.pipeline import in_flight, micro_batches
from suite.planner.formulas.recipes import fsdp_bytes, megatron_bytes, zero_bytes
from suite.planner.jobs import Column, Jobs

GIB = 2**30
#: What is thought of the memory model's parameters before a row is seen: centre and spread, as for the timing model.
MEMORY_PRIORS: Mapping[str, tuple[float, float]] = {
    "operators_share": (0.55, 0.25),
    "logit_bytes": (12.0, 0.2),
    "fragmentation": (0.02, 0.5),
    "whole_inputs": (4.0, 0.3),
}
#: Logits in Megatron: fp32 copy, its gradient, 16-bit original; vocabulary-parallel loss works in place.
LOGIT_BYTES_ENGINE = 10
#: Context, kernels and communication buffers of a process, outside of the allocator.
OUTSIDE_ALLOCATOR = 1 * GIB
LAYERS_GATHERED = 2


def held_parameters(jobs: Jobs) -> tuple[Column, Column]:
    """Parameters of one tensor-parallel rank on the first and on the last stage of the pipeline.

    A gated MLP goes with an untied output head, as in the Llama family; GPT models tie it to the embedding.
    """
    blocks = jobs.layers * jobs.elements / (jobs.tensor * jobs.pipeline)
    table = jobs.vocab * jobs.hidden / jobs.tensor
    alone = jobs.pipeline == 1
    return blocks + table * np.where(alone & (jobs.gated > 0), 2, 1), blocks + np.where(alone, 0, table)


def memory_parts(jobs: Jobs, p: Mapping[str, float], half: Column | float = 0.0) -> dict[str, Column]:
    """Bytes by part on the device that needs most, as an allocator's reserved peak shows them.

    ``half`` is 1 for fp16 training in Megatron's recipe, which keeps four bytes more per parameter.
    """
    first, last = held_parameters(jobs)
    shards = np.maximum(1, jobs.data * jobs.context)
    weights, gradients, optimizer = _recipe(jobs, shards, half)
    layer = layer_bytes(jobs, p)
    count = micro_batches(jobs.global_batch, jobs.data, jobs.micro_batch)
    depth = jobs.layers / jobs.pipeline
    logits = (
        jobs.tokens
        * jobs.head_share
        * jobs.vocab
        / jobs.tensor
        * np.where(_megatron(jobs), LOGIT_BYTES_ENGINE, p["logit_bytes"])
    )
    kept_first = layer["kept"] * depth * in_flight(jobs.pipeline, jobs.chunks, count, jobs.pipeline - 1)
    kept_last = layer["kept"] * depth * in_flight(jobs.pipeline, jobs.chunks, count, 0)
    per = weights + gradients + optimizer
    at_end = per * last + kept_last + logits > per * first + kept_first + np.where(jobs.pipeline == 1, logits, 0)
    own = np.where(at_end, last, first)
    # Experts are spread over data parallel ranks, which share their optimizer states already.
    elsewhere = jobs.layers * jobs.expert_elements * (1 - 1 / jobs.expert_parallel) / (jobs.tensor * jobs.pipeline)
    here = own - np.where(_megatron(jobs), elsewhere, 0)
    parts = {
        "weights": weights * here,
        "gradients": gradients * here,
        "optimizer states": optimizer * own,
        "activations": np.where(at_end, kept_last, kept_first) + layer["again"],
        "logits": np.where(at_end | (jobs.pipeline == 1), logits, 0.0),
        "gathered layers": _gathered(jobs),
    }
    parts["fragmentation"] = p["fragmentation"] * sum(parts.values())
    return parts


def peak_bytes(jobs: Jobs, p: Mapping[str, float], half: Column | float = 0.0) -> Column:
    """Sum of the parts: what an allocator reserves."""
    return np.asarray(sum(memory_parts(jobs, p, half).values()))


def _megatron(jobs: Jobs) -> Column:
    """Whether a job runs in Megatron's recipe; PyTorch FSDP and DeepSpeed have their own."""
    return (jobs.zero_engine == 0) & (jobs.zero_stage <= 1)


def _recipe(jobs: Jobs, shards: Column, half: Column | float) -> tuple[Column, Column, Column]:
    """Bytes per parameter of weights, gradients and optimizer states."""
    stage = jobs.zero_stage
    zero = zero_bytes(stage, shards)
    megatron = megatron_bytes(stage >= 1, shards, half)
    # In a pipeline FSDP neither reshards weights nor reduces gradients between micro batches.
    piped = jobs.pipeline > 1
    fsdp = fsdp_bytes(shards, np.where((stage == 2) | piped, 1.0, 0.0), np.where(piped, 1.0, 0.0))
    is_fsdp = (jobs.zero_engine == 0) & (stage >= 2)
    is_zero = (jobs.zero_engine > 0) & (stage >= 1)
    adapters = jobs.low_rank > 0
    chosen = [np.select([is_zero, is_fsdp], [zero[i], fsdp[i]], megatron[i]) for i in range(3)]
    whole = np.where(stage >= 3, 2 / shards, 2.0)
    return np.where(adapters, whole, chosen[0]), np.where(adapters, 0, chosen[1]), np.where(adapters, 0, chosen[2])


def layer_bytes(jobs: Jobs, p: Mapping[str, float]) -> dict[str, Column]:
    """Bytes of one block and micro batch: ``kept`` for the backward pass, ``again`` to recompute, ``once`` in all."""
    tokens, tensor = jobs.tokens, jobs.tensor
    split = np.where(jobs.sequence_parallel > 0, tensor, 1)
    outside = activations.outside_bytes(tokens, jobs.hidden, split, np.where(jobs.fused_attention > 0, 0, 1))
    wide = jobs.experts_per_token * jobs.ffn
    inside = activations.inside_bytes(tokens, jobs.width, wide, jobs.kv_share, jobs.gated, tensor)
    routed = activations.routed_bytes(tokens, jobs.hidden, jobs.experts_per_token)
    inside = inside + np.where(jobs.experts > 1, routed / split, 0)
    scores = activations.score_bytes(tokens, jobs.attended, jobs.heads, tensor)
    scores = np.where(jobs.fused_attention > 0, 0, scores)
    inputs = 2 * tokens * jobs.hidden / split
    kept = activations.kept_bytes(jobs.recompute, outside, inside, scores, inputs, p["operators_share"])
    again = np.where(jobs.recompute > 0, outside + inside + scores - np.minimum(kept, outside), 0)
    # PyTorch's tensor parallelism keeps gathered inputs and unreduced outputs, which Megatron gathers anew.
    whole = np.where((jobs.tensor > 1) & ~_megatron(jobs), p["whole_inputs"] * 2 * tokens * jobs.hidden, 0)
    return {"kept": kept, "again": again + whole, "once": outside + inside + scores + whole}


def _gathered(jobs: Jobs) -> Column:
    """Whole weights and gradients of what ZeRO-3 has fetched: FSDP a block ahead, DeepSpeed by matrix."""
    block = LAYERS_GATHERED * jobs.elements / jobs.tensor + jobs.vocab * jobs.hidden / jobs.tensor
    matrix = jobs.hidden * jobs.ffn / jobs.tensor
    fetched = np.where(jobs.zero_engine > 0, matrix, block)
    return np.where((jobs.zero_stage >= 3) & (jobs.data * jobs.context > 1), 2 * 2 * fetched, 0.0)
