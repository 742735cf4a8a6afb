"""Seconds of one training step by part: theory's FLOPs and bytes over what a device reaches of its peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from suite.planner.formulas import blocks
from suite.planner.formulas.communication import (
    all_reduce_bytes,
    all_to_all_bytes,
    gather_bytes,
    group_bandwidth,
    overlapped,
)
from suite.planner.formulas.offload import MEGATRON_LINK_BYTES, ZERO_LINK_BYTES, optimizer_seconds
from suite.planner.formulas.pipeline import bubble, micro_batches
from suite.planner.jobs import ARCHITECTURES, Column, Jobs
from suite.planner.parameters import NAMES

Values = Mapping[str, float]

#: A backward pass of fused attention does five products for the forward pass's two (Dao, arXiv 2307.08691, 3.1.2).
ATTENTION_BACKWARD = 2.5
#: Packed fine-tuning sequences hold short documents; little of the full attention is left.
PACKED_ATTENTION = 0.1
#: Share of the forward pass's matrix products that per-operator recomputation does again.
OPERATORS_AGAIN = 0.25
#: Bytes moved per parameter by an Adam step: gradient, fp32 weight and both moments, read and written.
OPTIMIZER_TRAFFIC = 30
#: Share of low-rank adapters in a model's parameters: what is communicated and updated.
LOW_RANK_SHARE = 0.01
#: Bytes per parameter of gradient reduction (fp32) and of gathering the updated weights (16 bit).
DATA_PARALLEL_BYTES = 6
GATHER_PASSES = 3
#: Share of the last micro batch's time that its backward pass takes, behind which gradients are reduced.
BEHIND_LAST = 0.6
GATHER_SHARPNESS, DATA_SHARPNESS = 6.0, 4.0


@dataclass(frozen=True)
class Rates:
    """What the devices of jobs reach: FLOP/s and bytes per second."""

    linear: Column
    dense: Column
    attention: Column
    memory: Column


@dataclass(frozen=True)
class Block:
    """Seconds of one block and micro batch on one device: forward parts, and one collective's."""

    linear: Column
    attention: Column
    elementwise: Column
    scores: Column
    collective: Column
    exchange: Column
    routing: Column


def named(vector: np.ndarray) -> dict[str, float]:
    """Parameters by name from their logarithms."""
    return dict(zip(NAMES, np.exp(vector), strict=True))


def rates(jobs: Jobs, p: Values) -> Rates:
    """Achieved rates by architecture, precision and power limit."""
    by_architecture = np.array([p[f"matrix_{name}"] for name in ARCHITECTURES])
    code = jobs.architecture.astype(int)
    peak = jobs.peak * jobs.power_share ** p["power"]
    dense = peak * by_architecture[code]
    faster = np.where(jobs.precision == 2, jobs.fp4_ratio * p["fp8"] * p["fp4"], 2 * p["fp8"])
    attention = peak * p["attention"]
    attention = attention * np.where(jobs.engine > 0, p["attention_engine"], 1)
    attention = attention * np.where(code == ARCHITECTURES.index("ampere"), p["attention_ampere"], 1)
    attention = attention * np.where(jobs.width / jobs.heads < 100, p["attention_narrow"], 1)
    return Rates(
        linear=dense * np.where(jobs.precision == 0, 1, faster),
        dense=dense,
        attention=attention,
        memory=jobs.memory_bandwidth * p["memory_bandwidth"],
    )


def block_seconds(jobs: Jobs, p: Values, rate: Rates) -> Block:
    """Forward seconds of one block's matrix products, attention and elementwise work, and of its communication.

    Expert parallelism sends each token's input to the ranks of its experts and their outputs back, all of it exposed
    (Lepikhin et al., "GShard", arXiv 2006.16668, section 3.2); experts are taken to be chosen alike often, and products
    with few tokens each to be as fast as large ones.
    """
    tokens, hidden, tensor = jobs.tokens, jobs.hidden, jobs.tensor
    fused = jobs.fused_attention > 0
    mlps = jobs.experts_per_token
    moved = blocks.operand_bytes(tokens, hidden, jobs.ffn, jobs.kv_share, jobs.gated, tensor, jobs.width, mlps)
    traffic = p["matrix_traffic"] + np.where(jobs.row_scaling > 0, 2 * p["row_scaling"], 0)
    traffic = traffic + np.where(jobs.precision > 0, p["cast_traffic"], 0)
    inverse = blocks.inverse_inner_width(hidden, jobs.ffn, jobs.kv_share, jobs.gated, tensor, jobs.width, mlps)
    flops = blocks.linear_flops(tokens, jobs.active_elements, tensor)
    linear = flops / rate.linear * (1 + p["inner_width"] * inverse) + traffic * moved / rate.memory
    linear = linear + p["weight_traffic"] * blocks.weight_bytes(jobs.read_elements(tokens), tensor) / rate.memory
    attention = blocks.attention_flops(tokens, jobs.attended, jobs.width, tensor, jobs.fused_attention) / rate.attention
    scores = np.where(
        fused, 0, p["unfused_scores"] * blocks.score_bytes(tokens, jobs.attended, jobs.heads, tensor) / rate.memory
    )
    split = np.where(jobs.sequence_parallel > 0, tensor, 1)
    elementwise = blocks.residual_bytes(tokens, hidden, split) * (
        p["residual_traffic"] + np.where(jobs.gated > 0, 0, p["residual_plain"])
    ) + p["activation_traffic"] * blocks.activation_function_bytes(tokens, mlps * jobs.ffn, jobs.gated, tensor)
    slow = np.where(jobs.eager > 0, p["eager"] ** 3, 1) * np.where(fused, 1, p["unfused_traffic"])
    exposed = p["tensor_exposed"] * np.where(jobs.asynchronous_tensor > 0, p["tensor_asynchronous"], 1)
    passed = 2 * 2 * tokens * jobs.width * jobs.kv_share / tensor * (jobs.context - 1)
    routed = 2 * all_to_all_bytes(2 * tokens / split * hidden * mlps, jobs.expert_parallel)
    return Block(
        linear=linear,
        attention=attention * np.where(jobs.packed > 0, PACKED_ATTENTION, 1),
        elementwise=elementwise * slow / rate.memory,
        scores=scores,
        collective=exposed * all_reduce_bytes(2 * tokens * hidden, tensor) / ring_bandwidth(jobs, tensor, 1),
        exchange=p["context_exposed"] * passed / ring_bandwidth(jobs, jobs.context, tensor),
        routing=routed / ring_bandwidth(jobs, jobs.expert_parallel, tensor),
    )


def local_parameters(jobs: Jobs) -> Column:
    """Parameters of the fuller end of a pipeline on one tensor-parallel rank, before any sharding over data."""
    share = np.where(jobs.pipeline > 1, 0.5, jobs.tables)
    blocks_held = jobs.layers * jobs.local_elements / (jobs.tensor * jobs.pipeline)
    return blocks_held + jobs.vocab * jobs.hidden * share / jobs.tensor


def local_experts(jobs: Jobs) -> Column:
    """Of these, the experts' own."""
    return jobs.layers * jobs.expert_elements / (jobs.expert_parallel * jobs.tensor * jobs.pipeline)


def ring_bandwidth(jobs: Jobs, members: Column, stride: Column | int) -> Column:
    """Bytes per second of a ring over ``members`` ranks, ``stride`` apart: tensor parallel ranks are neighbours."""
    return group_bandwidth(members, stride, jobs.node_devices, jobs.link, jobs.network)


def shard_bandwidth(jobs: Jobs) -> Column:
    """Bytes per second of the rings over data parallel ranks, which are one tensor parallel group apart."""
    return ring_bandwidth(jobs, jobs.data * jobs.context, jobs.tensor)


def gather_seconds(jobs: Jobs, p: Values) -> Column:
    """Seconds to gather the weights once under ZeRO-3 (16 bit); 0 elsewhere."""
    slow = np.where(jobs.slow_gathers > 0, p["gather_zero_engine"], 1)
    bandwidth = shard_bandwidth(jobs) * p["gather_bandwidth"] * slow
    seconds = gather_bytes(2 * local_parameters(jobs), jobs.data * jobs.context) / bandwidth
    return np.where(jobs.zero_stage >= 3, seconds, 0)


def step_parts(jobs: Jobs, p: Values) -> dict[str, Column]:
    """Seconds of a training step by part; they add up to the step, stacks' own effects left out."""
    rate = rates(jobs, p)
    block = block_seconds(jobs, p, rate)
    full, operators = jobs.recompute == 3, jobs.recompute == 2
    selective = jobs.recompute == 1
    low_rank, fused, trained = jobs.low_rank > 0, jobs.fused_attention > 0, jobs.trained_share
    linear = block.linear * (1 + trained * (2.0 - low_rank + full + np.where(operators, OPERATORS_AGAIN, 0)))
    again = full + np.where(selective & ~fused, 1, 0)
    attention = (block.attention + block.scores) * (1 + trained * (ATTENTION_BACKWARD + again))
    layer = {
        "matrix products": linear,
        "attention": attention,
        "elementwise": block.elementwise * (1 + trained * (2 + full)),
        "tensor parallel": block.collective * (2 + trained * (2 + 2 * full)),
        "context parallel": block.exchange * 3,
        "expert parallel": block.routing * (1 + trained * (1 + full)),
        "launches": np.full(len(jobs), p["layer_seconds"]),
    }
    per_layer = sum(layer.values())
    count = micro_batches(jobs.global_batch, jobs.data, jobs.micro_batch)
    depth = jobs.layers / jobs.pipeline
    split = jobs.pipeline > 1
    shown = jobs.tokens * jobs.head_share
    head = 3 * blocks.head_flops(shown, jobs.hidden, jobs.vocab, jobs.tensor) / rate.dense
    head = head + p["loss_traffic"] * blocks.loss_bytes(shown, jobs.vocab, jobs.tensor) / rate.memory
    stage = depth * per_layer + np.where(split, 0, head)
    sends = jobs.chunks * 2 * 2 * jobs.tokens * jobs.hidden / jobs.tensor / jobs.network
    parts = {name: count * depth * seconds for name, seconds in layer.items()}
    parts["head and loss"] = count * np.where(split, p["head_imbalance"], 1) * head
    parts["bubble"] = p["bubble"] * bubble(jobs.pipeline, jobs.chunks) * stage
    parts["pipeline sends"] = np.where(split, p["stage_exposed"] * count * sends, 0)
    body = sum(parts[name] for name in layer) + parts["head and loss"]
    parts["parameter gathers"] = _gathers(jobs, p, count, body)
    parts["gradient reduction"] = _reduction(jobs, p, BEHIND_LAST * depth * per_layer)
    parts["optimizer"] = _optimizer(jobs, rate) + p["step_seconds"]
    whole = sum(parts.values())
    parts["stragglers"] = whole * p["stragglers"] * np.log2(np.maximum(jobs.devices / 8, 1))
    return parts


def forward_seconds(jobs: Jobs, p: Values, rate: Rates, block: Block) -> Column:
    """Seconds of one micro batch's forward pass through one stage, logits of ``head_share`` of its positions in."""
    layer = block.linear + block.attention + block.scores + block.elementwise + 2 * block.collective + block.routing
    head = blocks.head_flops(jobs.tokens * jobs.head_share, jobs.hidden, jobs.vocab, jobs.tensor) / rate.dense
    return jobs.layers / jobs.pipeline * layer + head


def step_seconds(jobs: Jobs, vector: np.ndarray) -> Column:
    """Seconds of a training step before stacks' own effects, from the logarithms of the parameters."""
    return _total(step_parts(jobs, named(vector)))


def _total(parts: Mapping[str, Any]) -> Column:
    return np.asarray(sum(parts.values()))


def _gathers(jobs: Jobs, p: Values, count: Column, body: Column) -> Column:
    """ZeRO-3 gathers weights for either pass and scatters gradients, every micro batch (arXiv 1910.02054, 7.2.2).

    In a pipeline FSDP keeps them and does so once a step.
    """
    times = np.where((jobs.pipeline > 1) & (jobs.zero_engine == 0), 1, count)
    traffic = times * GATHER_PASSES * gather_seconds(jobs, p)
    return p["gather_exposed"] * traffic + overlapped(body, traffic, GATHER_SHARPNESS)


def _reduction(jobs: Jobs, p: Values, behind: Column) -> Column:
    """Gradients reduced and weights gathered once a step, in part behind the last micro batch's backward pass."""
    ranks, share = jobs.data * jobs.context, _reduced_share(jobs)
    experts = local_experts(jobs)
    whole = gather_bytes(DATA_PARALLEL_BYTES * (share * (local_parameters(jobs) - experts)), ranks)
    whole = whole + gather_bytes(DATA_PARALLEL_BYTES * (share * experts), ranks / jobs.expert_parallel)
    seconds = whole / shard_bandwidth(jobs)
    seconds = np.where(jobs.zero_stage >= 3, 0, seconds)
    return p["data_exposed"] * seconds + p["data_last"] * overlapped(behind, seconds, DATA_SHARPNESS)


def _optimizer(jobs: Jobs, rate: Rates) -> Column:
    """Adam on the device's share, or on the host."""
    # Experts are spread over expert-parallel ranks already: of the data-parallel ones the rest is left to share them.
    experts, shards = local_experts(jobs), np.where(jobs.zero_stage >= 1, jobs.data * jobs.context, 1)
    spread = np.maximum(1, shards / jobs.expert_parallel)
    updated = _reduced_share(jobs) * (local_parameters(jobs) - experts) / shards
    updated = updated + _reduced_share(jobs) * experts / spread
    link = np.where(jobs.zero_engine > 0, ZERO_LINK_BYTES, MEGATRON_LINK_BYTES)
    on_host = optimizer_seconds(updated, link)
    return np.where(jobs.offload_optimizer > 0, on_host, OPTIMIZER_TRAFFIC * updated / rate.memory)


def _reduced_share(jobs: Jobs) -> Column:
    """Of the parameters, those that are reduced and updated."""
    return np.where(jobs.low_rank > 0, LOW_RANK_SHARE, jobs.trained_share)
