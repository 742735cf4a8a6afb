"""Peak memory of the fullest device by phase and part, as stacks hold it: of plain training, of whole iterations, and
of an engine beside or apart."""

from dataclasses import dataclass

import numpy as np

from suite.planner.formulas import memory as formulas
from suite.planner.formulas.pipeline import in_flight, micro_batches
from suite.planner.generation import cache_of_position
from suite.planner.work import Column, Generation, Jobs, Pairs, Training, Values

GIB = 2**30
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
#: Context, kernels and communication buffers of a process, outside of the allocator.
OUTSIDE_ALLOCATOR = 1 * GIB
#: What an engine needs beside weights and cache: activations of its largest batch, captured graphs.
ENGINE_WORKSPACE = 3 * GIB
#: Share of the free memory of which an engine makes its pool of keys and values, and how many samples it takes up at
#: once: what the suite's worker asks vLLM for. Of a device of its own an engine takes vLLM's default share.
POOL_SHARE_OF_FREE, MOST_AT_ONCE, OWN_SHARE = 0.5, 256, 0.9
#: Logits in Megatron: fp32 copy, its gradient, 16-bit original; vocabulary-parallel loss works in place. The same in
#: passes without a gradient, where a log-softmax stands in its place.
LOGIT_BYTES = 10
#: Tokens whose logits exist at once where the loss takes them in portions.
LOSS_PORTION = 512
#: FSDP fetches a block ahead of the one that it computes.
LAYERS_GATHERED = 2
#: DeepSpeed reduces gradients in buckets of at most this many elements, 16 bit (its default).
DEEPSPEED_BUCKET = 500_000_000
#: An optimizer step of DeepSpeed casts a shard's 16-bit gradients to fp32, under ZeRO-3 at most this many at once
#: (``sub_group_size``); before that it takes the norm of one gradient after the other in fp64 (``get_norm_dtype``).
_SUB_GROUP, _NORM_BYTES = 1e9, 8
#: Megatron clips one fp32 gradient after the other through a copy, without Apex and Transformer Engine. Its offloaded
#: optimizer leaves the fp32 weights on the device (megatron-core's HybridDeviceOptimizer).
_CLIP_BYTES, MEGATRON_LEAVES = 4, 4
#: ZeRO-3 keeps parameters gathered that backward needs again within 1e9 elements, so half as many behind which the
#: forward pass ends, and fetches 5e7 ahead (``max_reuse_distance`` and ``prefetch_bucket_size``, its defaults).
_LIVE = 5.5e8
#: In host memory: fp32 weights and gradients, both moments of Adam, of each trained parameter: what Megatron's
#: HybridDeviceOptimizer keeps there, and DeepSpeed by its own estimate (``estimate_zero2_model_states_mem_needs``,
#: without that estimate's factor of 1.5 for buffers)
OPTIMIZER_BYTES = 16
#: DeepSpeed's beside them: the 16-bit weights on their way to the device (ZeRO-1 and 2), or 16-bit gradients (ZeRO-3)
BUFFER_BYTES = 2
#: and under ZeRO-2 the 16-bit gradients that further micro batches are added to
ACCUMULATED_BYTES = 2
#: One gradient of each rank is on its way, and one that two ranks share is accumulated whole by both (ZeRO-1 and 2).
TENSOR_BYTES = 4
#: 16-bit weights where parameters are offloaded too (``estimate_zero3_model_states_mem_needs``: 18)
WEIGHT_BYTES = 2

Bytes = dict[str, Column]


@dataclass(frozen=True)
class Memory:
    """Of every pair: bytes by part in the most demanding phase of the device that trains, all of them, those of scoring
    and training alone, what the fullest device that generates takes, an engine's pool of keys and values, and whether
    all fits."""

    parts: Bytes
    total: Column
    training: Column
    engine: Column
    pool: Column
    fits: Column


def memory_of(work: Training, gen: Generation, pairs: Pairs, p: Values) -> Memory:
    """Bytes of every pair. Never below the memory floor of the same layout."""
    learning = training_phases(work, p)
    totals = np.array([sum(parts.values()) for parts in learning.values()])
    most = totals.argmax(axis=0)
    fullest = {part: np.choose(most, [parts[part] for parts in learning.values()]) for part in PARTS}
    who, together = gen.take(pairs.g), pairs.colocated > 0
    engine = who.engine > 0
    capacity = work.jobs.capacity[pairs.t]
    held = {part: column[pairs.t] for part, column in standing_bytes(work, p).items()}
    beside = sum(held.values())
    # Blocks with all experts, and the vocabulary's matrices.
    whole = who.jobs.layers * who.jobs.elements + who.jobs.tables * who.jobs.vocab * who.jobs.hidden
    weights = who.weight_bytes * whole / who.tensor
    pool = _pool(who, together, beside, weights + ENGINE_WORKSPACE, p)
    longest = cache_of_position(who) * (who.prompt + who.longest)
    own = _own_loop(work.take(pairs.t), who, p)
    generating = {part: held[part] for part in PARTS}
    generating["generation engine"] = np.where(engine, weights + ENGINE_WORKSPACE, 0)
    generating["KV cache"] = np.where(engine, np.maximum(pool, 0), own["KV cache"])
    for part in ("activations", "logits", "gathered layers", "fragmentation"):
        generating[part] = generating[part] + np.where(engine, 0, own[part])
    awake = {part: fullest[part][pairs.t] for part in PARTS}
    stays = engine & together & (who.sleeps == 0)
    for part in ("generation engine", "KV cache"):
        awake[part] = awake[part] + np.where(stays, generating[part], 0)
    of_generating = np.where(together, sum(generating.values()), 0)
    larger = of_generating > sum(awake.values())
    parts = {part: np.where(larger, generating[part], awake[part]) for part in PARTS}
    total = np.asarray(sum(parts.values()))
    apart = np.where(engine, weights + ENGINE_WORKSPACE + np.maximum(pool, 0) + OUTSIDE_ALLOCATOR, 0)
    generated = np.where(together, of_generating, apart)
    fits = (total <= capacity) & (generated <= who.jobs.capacity) & (~engine | (pool >= longest))
    return Memory(parts, total, totals.max(axis=0)[pairs.t], generated, pool, fits)


def _pool(gen: Generation, together: Column, beside: Column, taken: Column, p: Values) -> Column:
    """Bytes for keys and values: what is left of an engine's share of the device, where that is given or the device its
    own; else what all samples that run at once need, at most a share of what is free. Never less than the longest
    sample, without which an engine does not start."""
    capacity, share, position = gen.jobs.capacity, gen.pool_share, cache_of_position(gen)
    samples = np.minimum(gen.samples / gen.replicas, gen.places)
    wanted = position * samples * (gen.prompt + gen.response)
    longest = position * (gen.prompt + gen.longest)
    free = POOL_SHARE_OF_FREE * (capacity - beside - taken)
    free = np.where(gen.cache_share > 0, gen.cache_share * capacity, free)
    asked = np.minimum(np.maximum(wanted, longest), np.maximum(longest, free))
    given = np.where(np.isnan(share), OWN_SHARE, share) * capacity - taken
    return np.where(np.isnan(share) & together, asked, given * (1 - p["fragmentation"]))


def training_phases(work: Training, p: Values) -> dict[str, Bytes]:
    """Bytes by phase and part of every layout; ``step`` is the end of training, when the optimizer updates."""
    passes = {"score": work.old, "reference": work.reference}
    names = ("train", "step", *(name for name, times in passes.items() if np.any(times > 0)))
    return {name: _phase(work, p, name) for name in names}


def standing_bytes(work: Training, p: Values) -> Bytes:
    """What stays while an engine generates on the same device."""
    return _whole(work, p, _fuller([_states(work, end, "generate") for end in ("first", "last")]), gathered=False)


def _phase(work: Training, p: Values, phase: str) -> Bytes:
    """Of the pipeline's first or last stage, whichever holds more."""
    ends = []
    for end in ("first", "last"):
        states = _states(work, end, phase)
        if phase == "reference":
            # In fp32, in the place of the policy's weights, of which the optimizer's buffer keeps a copy.
            states["reference"] = np.maximum(states["reference"], 4 * work.swapped / work.jobs.tensor)
        if phase != "step":
            states |= _passes(work, p, end, phase)
        ends.append(states)
    return _whole(work, p, _fuller(ends))


def _fuller(ends: list[Bytes]) -> Bytes:
    first, last = ends
    larger = sum(last.values()) > sum(first.values())
    return {part: np.where(larger, last[part], first[part]) for part in first}


def _whole(work: Training, p: Values, parts: Bytes, gathered: bool = True) -> Bytes:
    """All parts, with what fragmentation adds, and what lies outside the allocator."""
    zero = np.zeros(len(work))
    whole = {part: parts.get(part, zero) + zero for part in PARTS}
    whole["gathered layers"] = _gathered(work) * gathered
    whole["fragmentation"] = p["fragmentation"] * np.asarray(sum(whole.values()))
    whole["outside the allocator"] = zero + OUTSIDE_ALLOCATOR
    return whole


def _passes(work: Training, p: Values, end: str, phase: str) -> Bytes:
    """Activations and logits of a micro batch's passes."""
    jobs = work.largest
    layer, depth = layer_bytes(jobs, p), jobs.layers / jobs.pipeline
    shown = jobs.tokens * jobs.head_share * jobs.vocab / jobs.tensor
    shown = shown * np.where((jobs.pipeline == 1) | (end == "last"), 1, 0)
    portion = np.minimum(1, LOSS_PORTION / np.maximum(jobs.tokens * jobs.head_share, 1))
    in_portions = work.chunked_loss > 0
    if phase != "train":
        return {"activations": layer["once"], "logits": shown * LOGIT_BYTES * np.where(in_portions, portion, 1)}
    count = micro_batches(jobs.global_batch, jobs.data, jobs.micro_batch)
    held = in_flight(jobs.pipeline, jobs.chunks, count, jobs.pipeline - 1 if end == "first" else 0)
    kept = layer["kept"] * depth * jobs.trained_share * held
    kept = np.where(work.activations_offloaded > 0, 0, kept)
    whole = np.where(jobs.trainer > 0, p["whole_logits"], 1)
    each = np.where(jobs.megatron, LOGIT_BYTES, p["logit_bytes"])
    each = each * np.where(in_portions, portion, whole)
    return {"activations": kept + layer["again"], "logits": shown * each}


def layer_bytes(jobs: Jobs, p: Values) -> Bytes:
    """Bytes of one block and micro batch: ``kept`` for the backward pass, ``again`` to recompute, ``once`` in all."""
    tokens, tensor = jobs.tokens, jobs.tensor
    split = np.where(jobs.sequence_parallel > 0, tensor, 1)
    outside = formulas.outside_bytes(tokens, jobs.hidden, split, np.where(jobs.fused_attention > 0, 0, 1))
    wide = jobs.experts_per_token * jobs.ffn
    inside = formulas.inside_bytes(tokens, jobs.width, wide, jobs.kv_share, jobs.gated, tensor)
    # The input and the output of each expert that a token meets, in 16 bit.
    routed = 2 * 2 * tokens * jobs.hidden * jobs.experts_per_token
    inside = inside + np.where(jobs.experts > 1, routed / split, 0)
    scores = formulas.score_bytes(tokens, jobs.attended, jobs.heads, tensor)
    scores = np.where(jobs.fused_attention > 0, 0, scores)
    inputs = 2 * tokens * jobs.hidden / split
    kept = formulas.kept_bytes(jobs.recompute, outside, inside, scores, inputs, p["operators_share"])
    again = np.where(jobs.recompute > 0, outside + inside + scores - np.minimum(kept, outside), 0)
    again = again * np.where(jobs.recompute == 3, p["again"] * np.where(jobs.experts > 1, p["again_experts"], 1), 1)
    # PyTorch's tensor parallelism keeps gathered inputs and unreduced outputs, which Megatron gathers anew.
    whole = np.where((jobs.tensor > 1) & ~jobs.megatron, p["whole_inputs"] * 2 * tokens * jobs.hidden, 0)
    return {"kept": kept, "again": again + whole, "once": outside + inside + scores + whole}


def _states(work: Training, end: str, phase: str) -> Bytes:
    """Bytes of weights, reference, optimizer states and gradients of one end of the pipeline in a phase, by recipe."""
    jobs, recipes = work.jobs, (_megatron, _zero, _fsdp)
    own = np.where(jobs.zero_engine > 0, 1, np.where(jobs.megatron, 0, 2))
    used = np.unique(own)
    if len(used) == 1:
        return recipes[used[0]](work, end, phase)
    told = [recipe(work, end, phase) for recipe in recipes]
    return {part: np.choose(own, [bytes_[part] for bytes_ in told]) for part in told[0]}


def _held(work: Training, end: str) -> tuple[Column, ...]:
    """Parameters that train, frozen ones, the reference's and the critic's, of experts a rank's own."""
    return tuple(work.held[f"{kind}_{end}"] for kind in ("trainable", "frozen", "reference", "critic"))


def _megatron(work: Training, end: str, phase: str) -> Bytes:
    """Gradients stand in a buffer of their own in fp32 throughout, which an offloaded optimizer leaves there."""
    jobs, (trainable, frozen, reference, critic) = work.jobs, _held(work, end)
    shards = np.maximum(1, jobs.data * jobs.context)
    weights, gradients, optimizer = formulas.megatron_bytes(jobs.zero_stage >= 1, shards, work.half)
    # Sharded states are divided by all data parallel ranks, over which experts are spread already.
    divided = np.where(jobs.zero_stage >= 1, work.held[f"sharded_{end}"], trainable)
    share = divided / np.where(jobs.zero_stage >= 1, shards, 1)
    clipped = _CLIP_BYTES * np.minimum(share, work.largest_tensor / jobs.tensor)
    on_device = optimizer * (divided + critic)
    return {
        "weights": weights * (trainable + frozen + critic),
        "reference": weights * reference,
        "optimizer states": np.where(jobs.offload_optimizer > 0, MEGATRON_LEAVES * share, on_device),
        "gradients": gradients * (trainable + critic) + (clipped if phase == "step" else 0),
    }


def _zero(work: Training, end: str, phase: str) -> Bytes:
    """DeepSpeed's ZeRO. ZeRO-3's bucket and its partition of gradients stand throughout (other stages free theirs), and
    for ZeRO-1 and 2 with an offloaded optimizer the buffer through which gradients go to the host."""
    jobs, (trainable, frozen, reference, critic) = work.jobs, _held(work, end)
    stage, shards = jobs.zero_stage, np.maximum(1, jobs.data)
    weights, gradients, optimizer = formulas.zero_bytes(stage, shards)
    kept = np.where(work.offload_parameters > 0, 0, 1)
    host = np.where(jobs.offload_optimizer > 0, 0, 1)
    # ZeRO-1 reduces once a step: until then whole gradients are on the device, also where the optimizer is not.
    own = gradients * (trainable + critic) * np.where(stage <= 1, 1, host)
    most = np.where(work.bucket > 0, work.bucket, DEEPSPEED_BUCKET)
    bucket, of_critic = (2 * np.minimum(most, count) for count in (trainable, critic))
    share = np.maximum(trainable, critic) / np.where(stage >= 1, shards, 1)
    norm = _NORM_BYTES * np.minimum(share, work.largest_tensor)
    held = np.where(stage >= 3, own + bucket + of_critic, 2 * work.largest_tensor * (1 - host))
    if phase == "train":
        # Two buckets take turns where reduction overlaps backward; what several ranks own of one is copied together.
        turns = np.where((jobs.data > 1) & (stage > 0) & (stage < 3), 2, 1)
        copied = np.where(jobs.data > 1, 1, 0) * bucket
        held = held + np.where(stage >= 3, 0, own + turns * bucket) + copied + norm * (1 - host)
    elif phase == "step":
        # From ZeRO-1 on a partition's gradients (2 bytes) are joined before they are cast (4).
        cast = np.where(stage >= 1, 6, 4) * np.where(stage >= 3, np.minimum(share, _SUB_GROUP), share)
        held = held + np.where(stage >= 3, 0, own * host)
        held = held + np.maximum(cast * host, norm * np.where(stage >= 3, 1, host))
    return {
        "weights": weights * (trainable + frozen + critic) * kept,
        "reference": weights * reference * kept,
        "optimizer states": optimizer * (trainable + critic) * host,
        "gradients": held,
    }


def _fsdp(work: Training, end: str, phase: str) -> Bytes:
    """PyTorch's: fp32 weights and gradients, sharded; adapters leave frozen weights in fp32 too."""
    jobs, (trainable, frozen, reference, critic) = work.jobs, _held(work, end)
    shards = np.maximum(1, jobs.data * jobs.context)
    # In a pipeline FSDP neither reshards weights nor reduces gradients between micro batches.
    piped = jobs.pipeline > 1
    gathered = np.where((jobs.zero_stage == 2) | piped, 1.0, 0.0)
    weights, gradients, optimizer = formulas.fsdp_bytes(shards, gathered, np.where(piped, 1.0, 0.0))
    return {
        "weights": weights * (trainable + frozen + critic),
        "reference": 2 * reference / np.where(jobs.zero_stage >= 3, shards, 1),
        "optimizer states": np.where(jobs.offload_optimizer > 0, 0, optimizer) * (trainable + critic),
        "gradients": gradients * (trainable + critic) * (phase in ("train", "step")),
    }


def _gathered(work: Training) -> Column:
    """Under ZeRO-3: the weights that are whole at one moment, and the gradient of the largest matrix."""
    jobs, largest_tensor = work.jobs, work.largest_tensor
    whole = np.maximum(work.held["trainable_first"] + work.held["frozen_first"], work.held["reference_first"])
    live = np.minimum(whole, _LIVE + largest_tensor)
    split = (jobs.data * jobs.context > 1) | (work.offload_parameters > 0)
    block = LAYERS_GATHERED * jobs.elements / jobs.tensor + jobs.vocab * jobs.hidden / jobs.tensor
    fetched = np.where(jobs.zero_engine > 0, 2 * live + 2 * largest_tensor, 2 * 2 * block)
    return np.where((jobs.zero_stage >= 3) & split, fetched, 0.0)


def _own_loop(work: Training, gen: Generation, p: Values) -> Bytes:
    """What generating in the training stack's own loop needs beside the states: every row as long as the longest, and
    ZeRO-3's weights whole where they are gathered once."""
    rows, jobs = gen.samples / gen.replicas, work.jobs
    whole = 2 * (work.held["trainable_first"] + work.held["frozen_first"])
    gathers = (jobs.zero_stage >= 3) & (work.gathers_once > 0)
    parts = {
        "activations": 2 * 4 * rows * gen.prompt * jobs.hidden,
        "logits": 2 * 4 * rows * jobs.vocab / jobs.tensor,
        "KV cache": cache_of_position(gen) * rows * (gen.prompt + gen.longest),
        "gathered layers": np.where(gathers, whole, _gathered(work)),
    }
    parts["fragmentation"] = p["fragmentation"] * np.asarray(sum(parts.values()))
    return parts


def host_memory(work: Training) -> Column:
    """Bytes that every candidate keeps in host memory, over all its nodes; 0 where nothing is offloaded.

    What the allocator of pinned memory adds is left out.
    """
    stage, ranks = work.jobs.zero_stage, work.jobs.devices
    buffers = (BUFFER_BYTES + ACCUMULATED_BYTES * (stage == 2)) * work.trained
    buffers = buffers + TENSOR_BYTES * work.largest_tensor * ranks * (stage < 3)
    states = OPTIMIZER_BYTES * work.trained + np.where(work.jobs.zero_engine > 0, buffers, 0)
    weights = WEIGHT_BYTES * work.replica * (work.offload_parameters > 0)
    return states * (work.jobs.offload_optimizer > 0) + weights
