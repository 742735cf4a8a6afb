"""One RL iteration as it is run now: generation by an engine, scoring, training, weight synchronisation, placement.

The interface, vectorised over candidates (columns of one length, or numbers that stand for a whole column):

    work = RLWork(jobs=Jobs(...), generation=Generation(...), steps=..., ...)
    found = predict(work, load_parameters(), load_rl_parameters())
    found.phases       seconds by phase: generation, sync, scoring, critic, training, host
    found.seconds      seconds of an iteration (throughput is work.samples / found.seconds)
    found.memory       {"training": bytes, "generation": bytes}: the fullest device's peak on either side; "allocated"
                       is training's without what lies outside the allocator
    found.capacity     bytes of either side's device
    found.fits         whether both fit
    found.limit        index into LIMITS: what the iteration waits for most
    band("iteration")  (low, high): measured / predicted lay between them in four of five rows kept back
    band(kind, parameters, known=False) with kind one of KINDS; ``known`` False for a model without published rows

``jobs`` is one optimizer step on the training devices: ``jobs.devices`` are the training side's, ``global_batch`` the
samples of an optimizer step, ``sequence`` the tokens of a mean sample (padded ones where nothing is packed),
``attended`` the mean of squared lengths over the mean length, ``micro_batch`` the samples of a micro batch, which need
not be whole where samples are packed. ``staleness`` is 0 where training waits for its own samples, 1 where it trains on
those of the iteration before, more where it runs free; it needs ``colocated`` 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from suite.planner.formulas import blocks, decode
from suite.planner.formulas import generation as engine
from suite.planner.formulas.communication import all_reduce_bytes, group_bandwidth, overlapped
from suite.planner.formulas.pipeline import bubble, micro_batches
from suite.planner.jobs import Column, Jobs
from suite.planner.memory import OUTSIDE_ALLOCATOR
from suite.planner.parameters import Parameters
from suite.planner.rl_memory import generation_memory, pool_bytes, training_memory
from suite.planner.rl_parameters import RLParameters, load_rl_parameters
from suite.planner.rl_sync import sync_seconds
from suite.planner.timing import block_seconds, forward_seconds, gather_seconds, rates, step_parts

Values = Mapping[str, float]
PHASES = ("generation", "sync", "scoring", "critic", "training", "host")
#: What ``band`` knows; ``memory`` is of the training side.
KINDS = ("iteration", "generation", "scoring", "training", "sync", "memory")
LIMITS = (
    "generation: weights read at every step",
    "generation: keys and values read",
    "generation: matrix products",
    "generation: latency of launches and collectives",
    "generation: the longest sample",
    "generation: the pool of keys and values",
    "training: matrix products and attention",
    "training: communication",
    "training: pipeline bubble",
    "training: host work",
    "scoring",
    "critic",
    "weight synchronisation",
    "host work",
)
SHARPNESS = 4.0
#: Most rows of the training fit have sequences of at most this many tokens.
USUAL_SEQUENCE = 8192
#: Share of a device that an engine which runs at all has for keys and values; ``fits`` says whether it has.
LEAST_POOL = 0.02


@dataclass(frozen=True)
class Generation:
    """The generating side, columns or numbers. ``samples`` are of an iteration, on all replicas; lengths are tokens.

    ``weight_bytes`` is bytes of an element (2, or 1 in fp8), ``cache_bytes`` those of keys and values of one position
    and layer over all ranks, ``latent`` 1 where they are one latent of all heads, ``pool_share`` the share of the
    device's memory that the engine takes, ``places`` how many samples it takes up at once.
    """

    devices: Any
    tensor: Any
    samples: Any
    prompt: Any
    response: Any
    longest: Any
    spread: Any = engine.USUAL_SPREAD
    weight_bytes: Any = 2.0
    cache_bytes: Any = 0.0
    latent: Any = 0.0
    pool_share: Any = 0.6
    places: Any = 1024.0
    eager: Any = 0.0


@dataclass(frozen=True)
class RLWork:
    """Candidates. ``steps`` optimizer steps an iteration, ``scores`` forward passes over all samples beside training
    (old log-probabilities, reference), ``critic`` the critic's work over the policy's, ``weights`` parameters of the
    whole model, ``effects`` logarithms of factors on phases, each a number or a column."""

    jobs: Jobs
    generation: Generation
    steps: Any
    weights: Any
    scores: Any = 2.0
    critic: Any = 0.0
    colocated: Any = 1.0
    staleness: Any = 0.0
    chunked_loss: Any = 0.0
    flash_three: Any = 0.0
    offloaded: Any = 0.0
    one_by_one: Any = 0.0
    reference_held: Any = 0.0
    effects: Mapping[str, Any] | None = None

    @property
    def samples(self) -> Any:
        return self.generation.samples


@dataclass(frozen=True)
class Predicted:
    """What ``predict`` answers, one number for each candidate."""

    phases: dict[str, Column]
    seconds: Column
    memory: dict[str, Column]
    capacity: Column
    fits: Column
    limit: Column


def band(kind: str, parameters: RLParameters | None = None, known: bool = True) -> tuple[float, float]:
    """Factors on a prediction of ``kind`` between which four of five measured values lay. KeyError for another kind.

    ``known`` is whether published rows of the model are in the fit; without it the band is that of models left out.
    """
    made = parameters or load_rl_parameters()
    found = (made.bands if known else made.new_model_bands)[kind]
    return found.low, found.high


@dataclass(frozen=True)
class Physics:
    """What the training physics says of candidates' passes: seconds of an optimizer step by part, of a micro batch's
    forward pass through a stage and of its matrix products, of gathering weights once, and FLOP/s in 16 bit."""

    parts: Mapping[str, Column]
    stage: Column
    linear: Column
    attention: Column
    gather: Column
    dense: Column


def physics(work: RLWork, p: Values) -> Physics:
    """The part of ``predict`` that no RL parameter changes; a fit computes it once."""
    jobs = work.jobs
    rate = rates(jobs, p)
    block = block_seconds(jobs, p, rate)
    depth = jobs.layers / jobs.pipeline
    return Physics(
        parts=step_parts(jobs, p),
        stage=forward_seconds(jobs, p, rate, block),
        linear=depth * block.linear,
        attention=depth * block.attention,
        gather=gather_seconds(jobs, p),
        dense=rate.dense,
    )


def predict(work: RLWork, parameters: Parameters, rl: RLParameters, base: Physics | None = None) -> Predicted:
    """Phases, whole iteration, memory and limit of every candidate."""
    p, q = parameters.values, rl.values
    effects = work.effects or {}
    base = base or physics(work, p)
    parts = generation_parts(work, p, q, parameters.memory, base)
    training = training_parts(work, p, q, base)
    phases = phase_seconds(work, p, q, base, parts, training, effects)
    allocated = training_memory(work, parameters.memory, q)
    trained = allocated + OUTSIDE_ALLOCATOR
    generated = generation_memory(work, parts["pool"])
    outside = np.where(np.asarray(work.colocated) > 0, np.maximum(trained, generated), trained)
    capacity = work.jobs.capacity
    return Predicted(
        phases=phases,
        seconds=iteration_seconds(work, phases, parts),
        memory={"training": trained, "generation": generated, "allocated": allocated},
        capacity=capacity,
        fits=(outside <= capacity) & (generated <= capacity) & (parts["pool"] > 0),
        limit=_limit(work, phases, parts, training),
    )


def phase_seconds(
    work: RLWork,
    p: Values,
    q: Values,
    base: Physics,
    generated: Mapping[str, Column],
    training: Mapping[str, Column],
    effects: Mapping[str, Any],
) -> dict[str, Column]:
    """Seconds of each phase by itself; what is hidden behind what is ``iteration_seconds``'."""

    def scaled(name: str) -> Any:
        return np.exp(effects.get(name, 0.0))

    zero = np.zeros(len(work.jobs))
    trained = sum(training.values())
    forward = scoring_seconds(work, p, q, base)
    return {
        "generation": (generated["bulk"] + generated["tail"]) * scaled("generation") + zero,
        "sync": sync_seconds(work, q) * scaled("sync") + zero,
        "scoring": np.asarray(work.scores) * forward * scaled("scoring") + zero,
        "critic": np.asarray(work.critic) * (forward * scaled("scoring") + trained * scaled("training")) + zero,
        "training": trained * scaled("training") + zero,
        "host": q["iteration_fixed"] + q["sample_host"] * np.asarray(work.samples, dtype=float) + zero,
    }


def iteration_seconds(work: RLWork, phases: Mapping[str, Column], generated: Mapping[str, Column]) -> Column:
    """Seconds of a whole iteration by placement.

    Colocated, or split and waiting: the phases one after the other. One step off: the slower side, since either works
    on while the other does. As far as ``staleness`` allows, samples of the next iterations fill the places that come
    free, and nobody waits for the longest (AReaL, arXiv 2505.24298, section 4.1).
    """
    learn = phases["scoring"] + phases["critic"] + phases["training"] + phases["host"]
    one_by_one = phases["generation"] + learn + phases["sync"]
    free = np.clip(work.staleness, 0, 1)
    saved = generated["tail"] / np.maximum(generated["bulk"] + generated["tail"], 1e-300)
    generate = phases["generation"] * (1 - free * saved)
    together = np.maximum(generate, learn)
    together = together + overlapped(together, np.minimum(generate, learn), SHARPNESS)
    split = (1 - free) * one_by_one + free * (together + phases["sync"])
    return np.where(np.asarray(work.colocated) > 0, one_by_one, split)


def training_parts(work: RLWork, p: Values, q: Values, base: Physics | None = None) -> dict[str, Column]:
    """Seconds of an iteration's training by part."""
    jobs = work.jobs
    parts = dict(base.parts if base else step_parts(jobs, p))
    mixture = jobs.experts > 1
    parts["matrix products"] = parts["matrix products"] * np.where(mixture, q["expert_products"], 1)
    parts["attention"] = parts["attention"] / _attention_rate(work, q)
    parts["elementwise"] = parts["elementwise"] * np.where(jobs.low_rank > 0, q["adapters"], 1)
    logits = blocks.loss_bytes(jobs.global_batch / jobs.data * jobs.sequence / jobs.context, jobs.vocab, jobs.tensor)
    portions = np.where(np.asarray(work.chunked_loss) > 0, q["portions"], 0)
    parts["head and loss"] = parts["head and loss"] + portions * logits / jobs.memory_bandwidth
    busy = sum(parts[name] for name in parts)
    count = micro_batches(jobs.global_batch, jobs.data, jobs.micro_batch) + bubble(jobs.pipeline, jobs.chunks)
    passes = 3 + np.where(jobs.recompute == 3, 1, 0) - np.where(jobs.low_rank > 0, 1, 0)
    host = count * passes * jobs.layers / jobs.pipeline * _layer_host(jobs, q)
    parts["host"] = overlapped(busy, host, SHARPNESS)
    return {name: np.asarray(work.steps) * seconds for name, seconds in parts.items()}


def scoring_seconds(work: RLWork, p: Values, q: Values, base: Physics | None = None) -> Column:
    """Seconds of one forward pass over all samples of the iteration on the training devices."""
    jobs, base = work.jobs, base or physics(work, p)
    stage = base.stage + np.where(jobs.experts > 1, (q["expert_products"] - 1) * base.linear, 0)
    stage = stage + (1 / _attention_rate(work, q) - 1) * base.attention
    count = micro_batches(np.asarray(work.samples, dtype=float), jobs.data, jobs.micro_batch)
    body = (count + jobs.pipeline - 1) * stage
    host = (count + jobs.pipeline - 1) * jobs.layers / jobs.pipeline * _layer_host(jobs, q)
    gathers = count * base.gather
    whole = body + overlapped(body, host, SHARPNESS)
    return q["scoring_slow"] * (whole + p["gather_exposed"] * gathers + overlapped(whole, gathers, SHARPNESS))


def _attention_rate(work: RLWork, q: Values) -> Column:
    """What FlashAttention 3, and sequences longer than those of the training fit, gain in attention."""
    longer = np.maximum(1, work.jobs.attended / USUAL_SEQUENCE) ** q["attention_longer"]
    return np.where(np.asarray(work.flash_three) > 0, q["flash_three"], 1.0) * longer


def _layer_host(jobs: Jobs, q: Values) -> Column:
    return q["layer_host"] * np.where(jobs.experts > 1, q["expert_host"], 1)


def generation_parts(
    work: RLWork, p: Values, q: Values, memory: Values, base: Physics | None = None
) -> dict[str, Column]:
    """Seconds of generation: ``bulk`` where samples of later iterations take the places that come free, so that as many
    run together as staleness, places and pool allow; ``tail`` what waiting for this iteration's last sample adds.

    The rest tells what of both goes where (``read``, ``cache``, ``products``, ``latency``), how many samples run
    ``together``, whether some wait for the pool (``waits``), and the ``pool``'s bytes on each device.
    """
    jobs, gen = work.jobs, work.generation
    tensor, longest = np.asarray(gen.tensor, dtype=float), np.asarray(gen.longest, dtype=float)
    replicas = np.maximum(1, np.asarray(gen.devices) / tensor)
    samples = np.asarray(gen.samples, dtype=float) / replicas
    full = engine.fullest_share(gen.spread, samples, replicas)
    pool = pool_bytes(jobs, gen) * (1 - memory["fragmentation"])
    of_sample = _cache_of_position(jobs, gen) * (gen.prompt + 0.6 * np.asarray(gen.response))
    room = np.maximum(pool, LEAST_POOL * jobs.capacity)
    together = engine.at_once(samples, gen.places, room, of_sample)
    steps = engine.steps_to_the_last(samples, gen.response, longest, together)
    ahead = engine.at_once(samples * np.maximum(1, work.staleness), gen.places, room, of_sample)
    tokens = full * samples * gen.response
    bandwidth = jobs.memory_bandwidth * q["decode_bandwidth"]
    cache = _cache_of_position(jobs, gen) * engine.cache_read(samples, gen.prompt, gen.response, gen.spread) / bandwidth
    flops = decode.step_flops(1, jobs.layers, jobs.active_elements, jobs.hidden, jobs.vocab, tensor)
    dense = (base.dense if base else rates(jobs, p).dense) * np.where(np.asarray(gen.weight_bytes) < 2, 2 * p["fp8"], 1)
    products = tokens * flops / (q["decode_products"] * dense)
    prefill = samples * gen.prompt * flops / dense
    volume = 2 * jobs.layers * all_reduce_bytes(2 * tokens * jobs.hidden, tensor)
    waits = volume / group_bandwidth(tensor, 1, jobs.node_devices, jobs.link, jobs.network)
    waits = waits + tokens * q["engine_sequence"]
    each = _step_latency(jobs, gen, q) + q["engine_step"]

    def decoded(count: Column) -> tuple[Column, Column, Column]:
        read = jobs.layers * jobs.read_elements(tokens / np.maximum(count, 1)) + jobs.vocab * jobs.hidden
        weights = count * gen.weight_bytes * read / tensor / bandwidth
        device, latency = weights + cache, count * each + waits
        busy = device + overlapped(device, products, SHARPNESS)
        # A graph's kernels wait for each other; uncaptured ones are launched while the device works on those before.
        more = np.where(np.asarray(gen.eager) > 0, overlapped(busy, latency, SHARPNESS), latency)
        return prefill + busy + more, weights, latency

    whole, weights, latency = decoded(steps)
    bulk = decoded(engine.refilled_steps(samples, gen.response, ahead))[0]
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
        "pool": pool,
    }


def _cache_of_position(jobs: Jobs, gen: Generation) -> Column:
    """Bytes of keys and values of one position on each rank."""
    given = np.asarray(gen.cache_bytes, dtype=float)
    whole = jobs.layers * np.where(given > 0, given, 2 * 2 * jobs.width * jobs.kv_share)
    return whole / engine.cache_ranks(gen.tensor, jobs.kv_heads, np.asarray(gen.latent))


def _step_latency(jobs: Jobs, gen: Generation, q: Values) -> Column:
    tensor = np.asarray(gen.tensor)
    layer = np.where(np.asarray(gen.eager) > 0, q["engine_eager"], q["engine_layer"])
    layer = layer * np.where(jobs.experts > 1, q["engine_experts"], 1)
    layer = layer * np.where(np.asarray(gen.latent) > 0, q["engine_latent"], 1)
    # An engine's own all-reduce works within one host: eight devices, or four where a rack is one NVLink domain.
    host = np.where(jobs.node_devices > 8, 4, jobs.node_devices)
    across = np.where(tensor > host, q["reduce_network"], q["reduce_latency"])
    return jobs.layers * (layer + np.where(tensor > 1, 2 * across, 0))


def _limit(
    work: RLWork, phases: Mapping[str, Column], generated: Mapping[str, Column], training: Mapping[str, Column]
) -> Column:
    """Index of the largest part of the side that is waited for."""
    learn = phases["scoring"] + phases["critic"] + phases["training"] + phases["host"]
    split = (np.asarray(work.colocated) == 0) & (np.asarray(work.staleness) > 0)
    generates = np.where(split, phases["generation"] >= learn, True)
    learns = np.where(split, phases["generation"] < learn, True)
    whole = sum(generated[name] for name in ("read", "cache", "products", "latency"))
    share = phases["generation"] / np.maximum(whole, 1e-300)
    idle = generated["tail"] / np.maximum(generated["bulk"] + generated["tail"], 1e-300)
    idle = np.where(split, 0, idle)
    filled = share * np.where(idle > 0.5, 0.0, 1.0)
    compute = ("matrix products", "attention", "elementwise", "head and loss", "optimizer", "launches")
    talk = ("tensor parallel", "context parallel", "expert parallel", "parameter gathers", "gradient reduction")
    scale = phases["training"] / np.maximum(sum(training.values()), 1e-300)
    zero = np.zeros(len(work.jobs))
    columns = [
        *(np.where(generates, generated[name] * filled, 0) for name in ("read", "cache", "products", "latency")),
        np.where(generates & (idle > 0.5), phases["generation"], 0),
        np.where(generates & (generated["waits"] > 0) & (idle <= 0.5), phases["generation"] / 2, 0),
        np.where(learns, scale * sum(training[name] for name in compute), 0),
        np.where(learns, scale * sum(training[name] for name in talk), 0),
        np.where(learns, scale * training["bubble"], 0),
        np.where(learns, scale * training["host"], 0),
        np.where(learns, phases["scoring"], 0),
        np.where(learns, phases["critic"], 0),
        phases["sync"],
        np.where(learns, phases["host"], 0),
    ]
    return np.argmax([column + zero for column in columns], axis=0)
