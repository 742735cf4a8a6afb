"""Seconds of generation and of handing weights over: by an engine of its own, or in the training stack's own loop."""

from dataclasses import replace
from typing import Any

import numpy as np

from suite.planner import training
from suite.planner.formulas import blocks
from suite.planner.formulas import generation as engine
from suite.planner.formulas.communication import all_reduce_bytes, gather_bytes, group_bandwidth
from suite.planner.training import gather_seconds, ring_bandwidth
from suite.planner.work import Column, Generation, Pairs, Training, Values

#: Latency of a small all-reduce inside a node, in the training stack's own loop.
COLLECTIVE_LATENCY = 2e-5
#: Seconds in which a loop that nothing compiles launches one block of a decoding step: Hugging Face's models took 0.53
#: ms at 125M and 0.62 at 2.7B, Megatron-Core's 1.21 and 1.17, on an H100 with 16 host cores, 2026-11-26
#: (docs/results/h100). DeepSpeed-Chat, the one whole trainer with such a loop, has kernels of its own and launches as
#: fast as a forward pass.
LAUNCH_DECODE_PLAIN, LAUNCH_DECODE_MEGATRON = 6e-4, 1.2e-3
#: Share of a device that an engine which runs at all has for keys and values; ``fits`` says whether it has.
LEAST_POOL = 0.02
#: Tensors of a block that are handed over: norms, attention, MLP; and three for each expert, which engines keep fused.
TENSORS, EXPERT_TENSORS = 9, 3


def engine_parts(gen: Generation, staleness: Any, pool: Column, p: Values) -> dict[str, Column]:
    """Seconds of an engine: ``bulk`` where samples of later iterations take the places that come free, so that as many
    run together as staleness, places and pool allow; ``tail`` what waiting for this iteration's last sample adds.

    The rest tells what of both goes where (``read``, ``cache``, ``products``, ``prefill``, ``latency``), how many
    samples run ``together``, and whether some wait for the ``pool``, bytes of a device (``waits``).
    """
    jobs, tensor, response = gen.jobs, gen.tensor, gen.response
    samples = gen.samples / gen.replicas
    full = engine.fullest_share(gen.spread, samples, gen.replicas)
    of_sample = cache_of_position(gen) * (gen.prompt + 0.6 * response)
    room = np.maximum(pool, LEAST_POOL * jobs.capacity)
    together = engine.at_once(samples, gen.places, room, of_sample)
    ahead = engine.at_once(samples * np.maximum(1, staleness), gen.places, room, of_sample)
    tokens = full * samples * response
    rate = training.rates(jobs, p)
    bandwidth = jobs.memory_bandwidth * p["decode_bandwidth"]
    cache = cache_of_position(gen) * engine.cache_read(samples, gen.prompt, response, gen.spread) / bandwidth
    dense = rate.dense * np.where(gen.weight_bytes < 2, 2 * p["fp8"], 1)
    flops = engine.step_flops(1, jobs.layers, jobs.active_elements, jobs.hidden, jobs.vocab, tensor)
    products = tokens * flops / (p["decode_products"] * dense)
    # Prompts of a group are computed once (prefix caching), and logits of one position each.
    prompts = samples / np.minimum(gen.group, samples)
    head = blocks.head_flops(1, jobs.hidden, jobs.vocab, tensor)
    prefill = (prompts * gen.prompt * (flops - head) + prompts * head) / dense
    volume = 2 * jobs.layers * all_reduce_bytes(2 * tokens * jobs.hidden, tensor)
    reduced = volume / group_bandwidth(tensor, 1, jobs.node_devices, jobs.link, jobs.network)
    launched = _step_latency(gen, p)

    def decoded(count: Column) -> tuple[Column, Column, Column]:
        read = jobs.layers * jobs.read_elements(tokens / np.maximum(count, 1)) + jobs.vocab * jobs.hidden
        weights = count * gen.weight_bytes * read / tensor / bandwidth
        kernels = count * launched + reduced
        # What a host does between two steps hides behind nothing.
        host = count * p["engine_step"] + tokens * p["engine_sequence"]
        busy = blocks.roofline(products, weights + cache, p["roofline_exposed"])
        # A graph's kernels wait for each other; uncaptured ones are launched while the device works on those before.
        whole = np.where(gen.eager > 0, np.maximum(busy, kernels), busy + kernels)
        return prefill + whole + host, weights, kernels + host

    whole, weights, latency = decoded(engine.steps_to_the_last(samples, response, gen.longest, together))
    # Steps while every place is taken: what the samples need, shared by those that run together.
    bulk = decoded(samples * response / ahead)[0]
    return {
        "bulk": bulk,
        "tail": np.maximum(0, whole - bulk),
        "together": together,
        "read": weights,
        "cache": cache,
        "products": products,
        "prefill": prefill,
        "latency": latency,
        "waits": np.where(together < np.minimum(samples, gen.places), 1.0, 0.0),
    }


def cache_of_position(gen: Generation) -> Column:
    """Bytes of keys and values of one position on each rank of a replica, whose ranks are those of all its stages."""
    jobs, usual = gen.jobs, engine.position_bytes(1, gen.jobs.layers, gen.jobs.width * gen.jobs.kv_share, 1)
    whole = np.where(gen.cache_bytes > 0, gen.cache_bytes * jobs.layers, usual)
    return whole / engine.cache_ranks(gen.tensor / jobs.pipeline, jobs.kv_heads, gen.latent) / jobs.pipeline


def _step_latency(gen: Generation, p: Values) -> Column:
    jobs = gen.jobs
    layer = np.where(gen.eager > 0, p["engine_eager"], p["engine_layer"])
    layer = layer * np.where(jobs.experts > 1, p["engine_experts"], 1)
    layer = layer * np.where(gen.latent > 0, p["engine_latent"], 1)
    # An engine's own all-reduce works within one host: eight devices, or four where a rack is one NVLink domain.
    host = np.where(jobs.node_devices > 8, 4, jobs.node_devices)
    across = np.where(gen.tensor > host, p["reduce_network"], p["reduce_latency"])
    return jobs.layers * (layer + np.where(gen.tensor > 1, 2 * across, 0))


def own_loop(work: Training, gen: Generation, p: Values) -> dict[str, Column]:
    """Seconds of ``prefill`` and of decoding (``read``, and ``latency`` of launches and exchanges) in the training
    stack's own loop, which keeps every row until the longest response is complete: weights and cache read, matrices
    multiplied, launches, collectives, gathers.

    All prompts go through in one pass, as long as the longest, with logits of one position each.
    """
    jobs, rate = work.jobs, training.rates(work.jobs, p)
    rows, prompt, steps = gen.samples / gen.replicas, gen.prompt, gen.longest - 1
    prompts = replace(jobs, micro_batch=rows, sequence=prompt, attended=prompt, head_share=1.0 / prompt)
    passed = training.forward_seconds(replace(work, jobs=prompts), p)
    prefill = jobs.pipeline * passed + gather_seconds(jobs, p)
    cache = engine.cache_read_bytes(rows, prompt, steps + 1, jobs.layers, jobs.width * jobs.kv_share, jobs.tensor)
    weights = engine.weight_read_bytes(jobs.layers, jobs.read_elements(rows), jobs.hidden, jobs.vocab, jobs.tensor)
    flops = engine.step_flops(rows, jobs.layers, jobs.active_elements, jobs.hidden, jobs.vocab, jobs.tensor)
    products = steps * flops / (p["decode_products"] * rate.dense)
    device = blocks.roofline(products, (steps * weights + cache) / rate.memory, p["roofline_exposed"])
    volume = all_reduce_bytes(2 * rows * jobs.hidden, jobs.tensor) / ring_bandwidth(jobs, jobs.tensor, 1)
    collective = np.where(jobs.tensor > 1, 2 * jobs.layers * steps * (COLLECTIVE_LATENCY + volume), 0)
    collective = collective + jobs.layers * steps * training.routing_seconds(jobs, rows, COLLECTIVE_LATENCY)
    launch = np.where(jobs.zero_engine > 0, training.LAUNCH_FORWARD, LAUNCH_DECODE_MEGATRON)
    launch = np.where((jobs.plain_model > 0) & (jobs.trainer == 0), LAUNCH_DECODE_PLAIN, launch)
    launches = np.where(jobs.eager > 0, steps * launch * jobs.layers, 0)
    # Under ZeRO-3 every step gathers, or fetches, the weights anew, unless once for all, which prefill has done.
    once = (work.gathers_once > 0) | (work.regathers == 0)
    gathers = np.where(once, 0, steps) * gather_seconds(jobs, p) + np.where(once, 1, steps) * training.fetch_once(work)
    bound = device >= launches
    latency = np.where(bound, 0, launches) + collective + gathers
    return {"prefill": prefill, "read": np.where(bound, device, 0), "latency": latency}


def sync_seconds(work: Training, gen: Generation, pairs: Pairs, p: Values) -> Column:
    """Seconds to give an engine new weights, from links, tensors and what is converted.

    On the same devices it wakes, its weights come back over the host link, and each rank gathers its part from those
    that train it (ZeRO-3's are gathered before they are handed over). Between devices whole tensors are broadcast, and
    every rank of every engine cuts its part out of them (vLLM, examples/offline_inference/rlhf_utils.py).
    """
    jobs, tensor = work.jobs, gen.tensor
    part = 2 * work.weights / tensor
    fused = jobs.layers * (TENSORS + np.where(jobs.experts > 1, EXPERT_TENSORS, 0))
    single = jobs.layers * (TENSORS + np.where(jobs.experts > 1, EXPERT_TENSORS * jobs.experts, 0))
    converted = np.where(gen.weight_bytes < 2, fused * p["convert_tensor"], 0)
    # What a rank has of its part already: one of as many shares as the model is divided into.
    divided = jobs.tensor * jobs.pipeline * np.where(jobs.zero_stage >= 3, jobs.data * jobs.context, 1)
    rate = training.shard_bandwidth(jobs) * p["gather_bandwidth"]
    gathered = gather_bytes(part, np.maximum(1, divided / tensor)) / rate
    shared = p["wake_fixed"] + part / (jobs.host_link * p["wake_share"]) + gathered + single * p["hand_tensor"]
    # Devices of two kinds never stand in one node, and the slower ones set the pace.
    apart = np.where(jobs.peak == gen.jobs.peak, 0, jobs.node_devices)
    members = jobs.devices + gen.devices + apart
    ring = np.minimum(ring_bandwidth(jobs, members, 1), ring_bandwidth(gen.jobs, members, 1))
    received = 2 * work.weights / (ring * p["send_share"])
    sent = p["send_fixed"] + received + np.where(pairs.one_by_one > 0, p["send_tensor"] * single, 0)
    return np.where(pairs.colocated > 0, shared, sent) + converted
