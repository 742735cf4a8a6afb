"""Seconds of one PPO iteration by phase, for many layouts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suite.planner.formulas import decode
from suite.planner.formulas.communication import all_reduce_bytes, overlapped
from suite.planner.formulas.offload import CAST_BYTES, fetch_seconds, swap_seconds
from suite.planner.jobs import Column, Jobs
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
    """PPO iterations: ``jobs`` are their optimizer steps, the rest what comes before and how it is held.

    ``held`` are parameters of one tensor parallel rank before sharding, by kind and end of the pipeline
    (``held_parts``), ``trained`` and ``weights`` those of a whole replica; ``largest_tensor`` is the elements of the
    largest weight matrix. ``critic_share`` is the work of a separate critic over the policy's, ``slower`` a factor on
    the computation of every pass but decoding. ``swapped`` are parameters before tensor parallelism whose reference
    waits in host memory.
    """

    jobs: Jobs
    prompt: int
    new: int
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


def phase_seconds(work: Iterations, p: Mapping[str, float]) -> dict[str, Column]:
    """Seconds of each phase, stacks' effects left out; ``generate`` splits into prefill and decode besides, and
    ``swap`` is what of ``reference`` goes to moving weights, where the reference waits in host memory.

    Work as docs/measuring.md describes it: all rollouts of a replica decode together, scoring and training go by micro
    batches, logits are computed for response positions alone.
    """
    prefill, steps = _prefill(work, p), _decode(work, p)
    forward = _scoring(work, p)
    reference = forward * work.reference_share
    train = sum(step_parts_of(work, p).values())
    swap: dict[str, Column] = {}
    if work.swapped:
        swap["swap"] = swap_seconds(work.swapped / work.jobs.tensor)
        reference = reference + swap["swap"] + _casts(work, p)
    return {
        "prefill": prefill,
        "decode": steps,
        "generate": prefill + steps,
        "score": forward * (1 + work.critic_share),
        "reference": reference,
        "reward": np.full(len(work.jobs), REWARD_SECONDS),
        "train": np.asarray(train),
        **swap,
    }


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


def _prefill(work: Iterations, p: Mapping[str, float]) -> Column:
    """All prompts of a replica in one pass; logits of one position each."""
    jobs = work.jobs
    columns = {
        "micro_batch": work.rollouts,
        "sequence": np.full(len(jobs), float(work.prompt)),
        "head_share": np.full(len(jobs), 1.0 / work.prompt),
    }
    prompts = Jobs(**{**jobs.__dict__, **columns})
    rate = rates(prompts, p)
    stage = work.slower * forward_seconds(prompts, p, rate, block_seconds(prompts, p, rate))
    return jobs.pipeline * stage + gather_seconds(jobs, p)


def _decode(work: Iterations, p: Mapping[str, float]) -> Column:
    """Steps after the first token: weights and cache read, matrices multiplied, launches, collectives, gathers."""
    jobs, steps = work.jobs, work.new - 1
    rate = rates(jobs, p)
    width = jobs.hidden * jobs.kv_share
    weights = decode.weight_read_bytes(jobs.layers, jobs.elements, jobs.hidden, jobs.vocab, jobs.tensor)
    cache = decode.cache_read_bytes(work.rollouts, work.prompt, work.new, jobs.layers, width, jobs.tensor)
    flops = decode.step_flops(work.rollouts, jobs.layers, jobs.elements, jobs.hidden, jobs.vocab, jobs.tensor)
    reads = (steps * weights + cache) / rate.memory
    products = steps * flops / (DECODE_MATRIX_SHARE * rate.dense)
    device = reads + overlapped(reads, products, SHARPNESS)
    launches = np.where(jobs.eager > 0, steps * LAUNCH_FORWARD * jobs.layers, 0)
    bandwidth = ring_bandwidth(jobs, jobs.tensor, 1)
    volume = all_reduce_bytes(2 * work.rollouts * jobs.hidden, jobs.tensor) / bandwidth
    collective = np.where(jobs.tensor > 1, 2 * jobs.layers * steps * (COLLECTIVE_LATENCY + volume), 0)
    gathers: Column | int = 1
    fetches: Column | int = 1
    if work.gathers_to_decode:  # where once for all, prefill has gathered already
        gathers, fetches = (np.where(work.gathers_once, once, steps) for once in (0, 1))
    return np.maximum(device, launches) + collective + gathers * gather_seconds(jobs, p) + fetches * _fetches(work, 1)
