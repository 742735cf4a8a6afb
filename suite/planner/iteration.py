"""Seconds of one iteration by phase, for many layouts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from suite.planner.engine_seconds import engine_seconds
from suite.planner.formulas import decode
from suite.planner.formulas.communication import all_reduce_bytes, all_to_all_bytes, overlapped
from suite.planner.formulas.offload import CAST_BYTES, fetch_seconds, swap_seconds
from suite.planner.jobs import Column, Jobs
from suite.planner.lengths import Decoding
from suite.planner.timing import (
    block_seconds,
    forward_seconds,
    gather_seconds,
    local_parameters,
    rates,
    ring_bandwidth,
    step_parts,
)

#: Seconds that Python and the driver need to launch one block, forward and in training, where nothing is compiled: a
#: block of Hugging Face's GPT-2 dispatches 37 operators to decode a token (counted), at about 8 microseconds each. Not
#: fitted: published training hides it, and published PPO rates cannot separate it from the computation.
LAUNCH_FORWARD, LAUNCH_TRAIN = 3e-4, 9e-4
#: Latency of a small all-reduce inside a node.
COLLECTIVE_LATENCY = 2e-5
#: Share of the training efficiency that the thin matrices of a decoding step reach when they are bound by FLOPs.
DECODE_MATRIX_SHARE = 0.5
#: Parts of a training step in which the device computes.
_COMPUTED = ("matrix products", "attention", "elementwise", "head and loss")
#: Scores gathered, KL, advantages, scores scattered: a few small collectives and host work.
REWARD_SECONDS = 0.02
SHARPNESS = 4.0


@dataclass(frozen=True)
class Iterations:
    """Iterations: ``jobs`` are their optimizer steps, the rest what comes before and how it is held.

    Passes of ``jobs`` are the mean ones of the fullest replica, ``largest`` the largest, which memory is needed for;
    where lengths are even the two are one. ``sample_tokens`` are real tokens of a mean sample, prompt and response.
    ``reference_share`` is the reference's work over the policy's: 0 where the algorithm asks no reference.
    ``held`` are parameters of one tensor parallel rank before sharding, by kind and end of the pipeline
    (``held_parts``), ``trained`` and ``weights`` those of a whole replica; ``largest_tensor`` is the elements of the
    largest weight matrix. ``critic_share`` is the work of a separate critic over the policy's, ``slower`` a factor on
    the computation of every pass but decoding. ``swapped`` are parameters before tensor parallelism whose reference
    waits in host memory.
    """

    jobs: Jobs
    largest: Jobs
    decoding: Decoding
    sample_tokens: Column
    steps: int
    reference_share: float
    rollouts: Column
    offload_optimizer: Column
    offload_parameters: Column
    gathers_to_decode: bool
    held: Mapping[str, Column]
    trained: int
    weights: int
    largest_tensor: int
    critic_share: float = 0.0
    slower: Column | float = 1.0
    swapped: int = 0
    #: ZeRO-3's weights are gathered, or fetched, once for all decoding steps
    gathers_once: Column | float = 0.0
    #: an engine of its own generates; it may free its memory when it has
    engine: bool = False
    engine_sleeps: bool = False
    #: how many times over its samples would fill an engine
    waves: Column | float = 1.0


def phase_seconds(work: Iterations, p: Mapping[str, float]) -> dict[str, Column]:
    """Seconds of each phase, stacks' effects left out; ``generate`` splits into prefill and decode besides, and
    ``swap`` is what of ``reference`` goes to moving weights, where the reference waits in host memory.

    Work as docs/measuring.md describes it: all rollouts of a replica decode together until the longest is complete,
    scoring and training go by micro batches, logits are computed for response positions alone. An engine of its own is
    given the weights first (``sync``). There is no ``reference`` where nothing is asked of one.
    """
    generated = _engine(work, p) if work.engine else {"prefill": _prefill(work, p), "decode": _decode(work, p)}
    forward = _scoring(work, p)
    train = sum(step_parts_of(work, p).values())
    phases = {
        **generated,
        "generate": generated["prefill"] + generated["decode"],
        "score": forward * (1 + work.critic_share),
    }
    if work.reference_share:
        phases["reference"] = forward * work.reference_share
    if work.reference_share and work.swapped:
        phases["swap"] = swap_seconds(work.swapped / work.jobs.tensor)
        phases["reference"] = phases["reference"] + phases["swap"] + _casts(work, p)
    return {**phases, "reward": np.full(len(work.jobs), REWARD_SECONDS), "train": np.asarray(train)}


def step_parts_of(work: Iterations, p: Mapping[str, float]) -> dict[str, Column]:
    """Seconds of the training phase by part: all optimizer steps of the iteration."""
    jobs = work.jobs
    parts = step_parts(jobs, p)
    parts |= {name: work.slower * parts[name] for name in _COMPUTED}
    count = np.ceil(jobs.global_batch / jobs.data / jobs.micro_batch)
    busy = parts["matrix products"] + parts["attention"] + parts["elementwise"] + parts["tensor parallel"]
    floor = np.where(jobs.eager > 0, count * jobs.layers / jobs.pipeline * LAUNCH_TRAIN, 0)
    parts["launches"] = parts["launches"] + np.maximum(0, floor - busy)
    parts["offload"] = count * _fetches(work, 3)
    # A critic trains whole, three passes, where a policy with adapters takes two.
    parts["critic"] = sum(parts.values()) * work.critic_share * np.where(jobs.low_rank > 0, 1.5, 1)
    return {name: work.steps * seconds for name, seconds in parts.items()}


def _fetches(work: Iterations, passes: int) -> Column:
    share = local_parameters(work.jobs) / np.maximum(1, work.jobs.data)
    return np.where(work.offload_parameters > 0, passes * fetch_seconds(share), 0)


def _scoring(work: Iterations, p: Mapping[str, float]) -> Column:
    jobs = work.jobs
    rate = rates(jobs, p)
    stage = work.slower * forward_seconds(jobs, p, rate, block_seconds(jobs, p, rate))
    stage = np.maximum(stage, np.where(jobs.eager > 0, LAUNCH_FORWARD * jobs.layers / jobs.pipeline, 0))
    count = np.ceil(work.rollouts / jobs.micro_batch)
    body = (count + jobs.pipeline - 1) * stage
    gathers = count * gather_seconds(jobs, p)
    return body + p["gather_exposed"] * gathers + overlapped(body, gathers, SHARPNESS) + count * _fetches(work, 1)


def _casts(work: Iterations, p: Mapping[str, float]) -> Column:
    """An fp32 reference under autocast: each micro batch casts its weights and multiplies in 16 bit as the policy."""
    count = np.ceil(work.rollouts / work.jobs.micro_batch)
    return count * CAST_BYTES * work.swapped / work.jobs.tensor / rates(work.jobs, p).memory


def _engine(work: Iterations, p: Mapping[str, float]) -> dict[str, Column]:
    """Seconds of what an engine of its own does; what ZeRO-3 shards is gathered before it is handed over."""
    found = engine_seconds(work.jobs, work.decoding, work.rollouts, work.waves, float(work.weights), p)
    return {**found, "sync": found["sync"] + gather_seconds(work.jobs, p)}


def _prefill(work: Iterations, p: Mapping[str, float]) -> Column:
    """All prompts of a replica in one pass, as long as the longest. Logits of one position each."""
    jobs, sequence = work.jobs, work.decoding.prompt
    prompts = replace(jobs, micro_batch=work.rollouts, sequence=sequence, attended=sequence, head_share=1.0 / sequence)
    rate = rates(prompts, p)
    stage = work.slower * forward_seconds(prompts, p, rate, block_seconds(prompts, p, rate))
    return jobs.pipeline * stage + gather_seconds(jobs, p)


def _decode(work: Iterations, p: Mapping[str, float]) -> Column:
    """Steps after the first token: weights and cache read, matrices multiplied, launches, collectives, gathers.

    The training stack's own loop keeps every row until the longest response is complete.
    """
    jobs, rate = work.jobs, rates(work.jobs, p)
    steps, rows = work.decoding.new - 1, work.rollouts
    lengths = (work.decoding.prompt, work.decoding.new)
    cache = decode.cache_read_bytes(rows, *lengths, jobs.layers, jobs.width * jobs.kv_share, jobs.tensor)
    read, met = jobs.read_elements(rows), jobs.active_elements
    weights = decode.weight_read_bytes(jobs.layers, read, jobs.hidden, jobs.vocab, jobs.tensor)
    flops = decode.step_flops(rows, jobs.layers, met, jobs.hidden, jobs.vocab, jobs.tensor)
    reads = (steps * weights + cache) / rate.memory
    products = steps * flops / (DECODE_MATRIX_SHARE * rate.dense)
    device = reads + overlapped(reads, products, SHARPNESS)
    bandwidth = ring_bandwidth(jobs, jobs.tensor, 1)
    volume = all_reduce_bytes(2 * rows * jobs.hidden, jobs.tensor) / bandwidth
    collective = np.where(jobs.tensor > 1, 2 * jobs.layers * steps * (COLLECTIVE_LATENCY + volume), 0)
    collective = collective + jobs.layers * steps * _routing(work, rows)
    launches = np.where(jobs.eager > 0, steps * LAUNCH_FORWARD * jobs.layers, 0)
    gathers: Column | int = 1
    fetches: Column | int = 1
    if work.gathers_to_decode:  # where once for all, prefill has gathered already
        gathers, fetches = (np.where(work.gathers_once, once, steps) for once in (0, 1))
    return np.maximum(device, launches) + collective + gathers * gather_seconds(jobs, p) + fetches * _fetches(work, 1)


def _routing(work: Iterations, rows: Column) -> Column:
    """Tokens to the ranks of their experts and back, in one step and layer."""
    jobs = work.jobs
    sent = all_to_all_bytes(2 * rows * jobs.hidden * jobs.experts_per_token, jobs.expert_parallel)
    seconds = 2 * (COLLECTIVE_LATENCY + sent / ring_bandwidth(jobs, jobs.expert_parallel, jobs.tensor))
    return np.where(jobs.expert_parallel > 1, seconds, 0)
