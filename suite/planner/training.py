"""Seconds of training and scoring by part: theory's FLOPs and bytes over what a device reaches of its peaks."""

from dataclasses import dataclass

import numpy as np

from suite.planner.formulas import blocks
from suite.planner.formulas.communication import (
    all_reduce_bytes,
    all_to_all_seconds,
    gather_bytes,
    group_bandwidth,
    overlapped,
)
from suite.planner.formulas.pipeline import bubble, micro_batches
from suite.planner.work import ARCHITECTURES, Column, Jobs, Training, Values

#: A backward pass of fused attention does five products for the forward pass's two (Dao, arXiv 2307.08691, 3.1.2).
ATTENTION_BACKWARD = 2.5
#: Packed fine-tuning sequences hold short documents; little of the full attention is left.
PACKED_ATTENTION = 0.1
#: All-reduces of the embedding and the head in a micro batch: one forward and one backward (megatron-core 0.16.1,
#: tensor_parallel/layers.py).
END_REDUCES = 2
#: Share of the forward pass's matrix products that per-operator recomputation does again.
OPERATORS_AGAIN = 0.25
#: Bytes moved per parameter by an Adam step: gradient, fp32 weight and both moments, read and written. A host is bound
#: by its memory: about 100 GB/s a socket pair, shared by eight devices (Ren et al., "ZeRO-Offload", arXiv 2101.06840,
#: section 5.1 and table 4).
OPTIMIZER_TRAFFIC, HOST_MEMORY_BYTES_PER_SECOND = 30, 100e9 / 8
#: Of an offloaded optimizer gradients go down and weights come up in 16 bit (arXiv 2101.06840, section 4.1), or both in
#: fp32 (megatron-core's HybridDeviceOptimizer, which is given fp32 shards).
ZERO_LINK_BYTES, MEGATRON_LINK_BYTES = 4, 8
#: A reference that waits in host memory (CarperAI/trlx at 3340c2f3, modeling_nemo_ppo.py, lines 182 and 228 to 244):
#: the policy's 16-bit weights go out, the reference's fp32 weights come in, and the policy's come back. Each pass casts
#: the fp32 weights to 16 bit: read and written.
SWAP_BYTES, CAST_BYTES = 2 + 4 + 2, 4 + 2
#: Share of low-rank adapters in a model's parameters: what is communicated and updated.
LOW_RANK_SHARE = 0.01
#: Bytes per parameter of gradient reduction, in Megatron and FSDP fp32, in DeepSpeed 16 bit
#: (``communication_data_type``), and of gathering the updated weights.
REDUCED_BYTES, REDUCED_BYTES_ZERO, UPDATED_BYTES = 4, 2, 2
#: DeepSpeed's ZeRO-1 and 2 give all gradients to all ranks, each of which keeps its part: twice the bytes of a scatter
#: (0.19.8, ``stage_1_and_2.py``: ``average_tensor`` under ``use_multi_rank_bucket_allreduce``, its default).
ALL_REDUCED = 2
GATHER_PASSES = 3
#: Of the five passes of a loss over its logits those that a forward pass takes: fp32 logits written and read, and their
#: log-softmax written.
SCORED = 3 / 5
#: Share of the last micro batch's time that its backward pass takes, behind which gradients are reduced.
BEHIND_LAST = 0.6
GATHER_SHARPNESS, DATA_SHARPNESS = 6.0, 4.0
#: Most training rows have sequences of at most this many tokens; attention's rate grows up to twice as long ones, where
#: the measurements of arXiv 2307.08691 (figures 4 to 7) end.
USUAL_SEQUENCE, LONGEST_GAIN = 8192, 2
#: No kernel reaches more of the peak, whatever its power.
MOST_OF_PEAK = 0.95
#: Seconds that Python and the driver need to launch one block where nothing is compiled: a block of Hugging Face's
#: GPT-2 dispatches 37 operators to decode a token (counted), at about 8 microseconds each. A backward pass takes two.
LAUNCH_FORWARD = 3e-4


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


def rates(jobs: Jobs, p: Values) -> Rates:
    """Achieved rates by architecture, precision and power limit."""
    by_architecture = np.array([p[f"matrix_{name}"] for name in ARCHITECTURES])
    code = jobs.architecture.astype(int)
    dense = jobs.peak * np.minimum(MOST_OF_PEAK, by_architecture[code] * jobs.power_share ** p["power"])
    faster = np.where(jobs.precision == 2, jobs.fp4_ratio * p["fp8"] * p["fp4"], 2 * p["fp8"])
    attention = jobs.peak * jobs.power_share ** p["power"] * p["attention"]
    attention = attention * np.where(jobs.engine > 0, p["attention_engine"], 1)
    attention = attention * np.where(code == ARCHITECTURES.index("ampere"), p["attention_ampere"], 1)
    attention = attention * np.where(jobs.width / jobs.heads < 100, p["attention_narrow"], 1)
    attention = attention * np.clip(jobs.attended / USUAL_SEQUENCE, 1, LONGEST_GAIN) ** p["attention_longer"]
    return Rates(
        linear=dense * np.where(jobs.precision == 0, 1, faster),
        dense=dense,
        attention=np.minimum(attention, MOST_OF_PEAK * jobs.peak),
        memory=jobs.memory_bandwidth * p["memory_bandwidth"],
    )


def block_seconds(work: Training, p: Values, rate: Rates) -> Block:
    """Forward seconds of one block's matrix products, attention and elementwise work, and of its communication.

    Expert parallelism sends each token's input to the ranks of its experts and their outputs back, all of it exposed
    (Lepikhin et al., "GShard", arXiv 2006.16668, section 3.2); experts are taken to be chosen alike often.
    """
    jobs = work.jobs
    tokens, hidden, tensor = jobs.tokens, jobs.hidden, jobs.tensor
    fused, mlps = jobs.fused_attention > 0, jobs.experts_per_token
    traffic = p["matrix_traffic"] + np.where(jobs.row_scaling > 0, 2 * p["row_scaling"], 0)
    traffic = traffic + np.where(jobs.precision > 0, p["cast_traffic"], 0)
    moved = traffic * blocks.operand_bytes(jobs) + blocks.ELEMENT_BYTES * jobs.read_elements(tokens) / tensor
    compute = blocks.linear_flops(tokens, jobs.active_elements, tensor) / rate.linear
    compute = compute * (1 + p["inner_width"] * blocks.inverse_inner_width(jobs))
    compute = compute * np.where(jobs.experts > 1, p["expert_products"], 1)
    plain = np.where(jobs.plain_model > 0, p["plain_model"], 1)
    attention = blocks.attention_flops(tokens, jobs.attended, jobs.width, tensor, jobs.fused_attention) / rate.attention
    scores = np.where(
        fused, 0, p["unfused_scores"] * blocks.score_bytes(tokens, jobs.attended, jobs.heads, tensor) / rate.memory
    )
    # Norms, residual additions and dropout: about eight passes over s b h in 16 bit (arXiv 2205.05198, 4.2.2).
    split = np.where(jobs.sequence_parallel > 0, tensor, 1)
    residual = 8 * blocks.ELEMENT_BYTES * tokens * hidden / split
    # The MLP's activation function reads and writes its width once, and reads a gate besides.
    activated = blocks.ELEMENT_BYTES * (2 + jobs.gated) * tokens * (mlps * jobs.ffn) / tensor
    passes = p["residual_traffic"] + np.where(jobs.gated > 0, 0, p["residual_plain"])
    elementwise = residual * passes + p["activation_traffic"] * activated
    slow = np.where(jobs.eager > 0, p["eager"] ** 3, 1) * np.where(fused, 1, p["unfused_traffic"])
    slow = slow * np.where((jobs.low_rank > 0) & (jobs.engine == 0), p["adapters"], 1)
    exposed = p["tensor_exposed"] * np.where(jobs.asynchronous_tensor > 0, p["tensor_asynchronous"], 1)
    passed = 2 * 2 * tokens * jobs.width * jobs.kv_share / tensor * (jobs.context - 1)
    routed = 2 * tokens / split * hidden * mlps
    return Block(
        linear=plain * blocks.roofline(compute, moved / rate.memory, p["roofline_exposed"]),
        attention=plain
        * attention
        * np.where(jobs.packed > 0, PACKED_ATTENTION, 1)
        / np.where(work.flash_three > 0, p["flash_three"], 1),
        elementwise=plain * elementwise * slow / rate.memory,
        scores=plain * scores,
        collective=exposed * all_reduce_bytes(2 * tokens * hidden, tensor) / ring_bandwidth(jobs, tensor, 1),
        exchange=p["context_exposed"] * passed / ring_bandwidth(jobs, jobs.context, tensor),
        routing=2 * _all_to_all(jobs, routed),
    )


def _all_to_all(jobs: Jobs, whole: Column) -> Column:
    return all_to_all_seconds(whole, jobs.expert_parallel, jobs.tensor, jobs.node_devices, jobs.link, jobs.network)


def routing_seconds(jobs: Jobs, rows: Column, latency: float) -> Column:
    """``rows`` tokens to the ranks of their experts and back, in one decoding step and layer."""
    seconds = 2 * (latency + _all_to_all(jobs, 2 * rows * jobs.hidden * jobs.experts_per_token))
    return np.where(jobs.expert_parallel > 1, seconds, 0)


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
    bandwidth = shard_bandwidth(jobs) * p["gather_bandwidth"]
    seconds = gather_bytes(2 * local_parameters(jobs), jobs.data * jobs.context) / bandwidth
    return np.where(jobs.zero_stage >= 3, seconds, 0)


def step_parts(work: Training, p: Values) -> dict[str, Column]:
    """Seconds of an optimizer step by part; they add up to the step, stacks' own effects left out."""
    jobs = work.jobs
    rate = rates(jobs, p)
    block = block_seconds(work, p, rate)
    full, operators = jobs.recompute == 3, jobs.recompute == 2
    selective = jobs.recompute == 1
    low_rank, fused, trained = jobs.low_rank > 0, jobs.fused_attention > 0, jobs.trained_share
    linear = block.linear * (1 + trained * (2.0 - low_rank + full + np.where(operators, OPERATORS_AGAIN, 0)))
    # Under sequence parallelism Megatron gathers the inputs of two projections again for their weights' gradients, the
    # head's too (arXiv 2205.05198, 4.2.2; megatron-core 0.16.1, LinearWithGradAccumulationAndAsyncCommunication).
    gathers = trained * np.where((jobs.sequence_parallel > 0) & jobs.megatron & ~low_rank, 1, 0)
    again = full + np.where(selective & ~fused, 1, 0)
    attention = (block.attention + block.scores) * (1 + trained * (ATTENTION_BACKWARD + again))
    layer = {
        "matrix products": linear,
        "attention": attention,
        "elementwise": block.elementwise * (1 + trained * (2 + full)),
        "tensor parallel": block.collective * (2 + trained * (2 + 2 * full) + gathers),
        "context parallel": block.exchange * (1 + trained * (2 + full)),
        "expert parallel": block.routing * (1 + trained * (1 + full)),
        "launches": np.full(len(jobs), p["layer_seconds"]),
    }
    per_layer = sum(layer.values())
    count = micro_batches(jobs.global_batch, jobs.data, jobs.micro_batch)
    depth = jobs.layers / jobs.pipeline
    split = jobs.pipeline > 1
    # A loss in portions reads its logits more often.
    passes = p["loss_traffic"] + np.where(work.chunked_loss > 0, p["portions"] / 5, 0)
    head = _head_seconds(jobs, p, rate, 3, passes)
    stage = depth * per_layer + np.where(split, 0, head)
    sends = jobs.chunks * 2 * 2 * jobs.tokens * jobs.hidden / jobs.tensor / jobs.network
    parts = {name: count * depth * seconds for name, seconds in layer.items()}
    ends = count * np.where(split, p["head_imbalance"], 1)
    parts["head and loss"] = ends * head
    parts["tensor parallel"] = parts["tensor parallel"] + ends * block.collective * (END_REDUCES + gathers / 2)
    parts["bubble"] = p["bubble"] * bubble(jobs.pipeline, jobs.chunks) * stage
    parts["pipeline sends"] = np.where(split, p["stage_exposed"] * count * sends, 0)
    body = sum(parts[name] for name in layer) + parts["head and loss"]
    parts["parameter gathers"] = _gathers(jobs, p, count, body)
    parts["gradient reduction"] = _reduction(jobs, p, BEHIND_LAST * depth * per_layer, count, body)
    parts["offload"] = count * GATHER_PASSES * fetch_once(work)
    parts["optimizer"] = _optimizer(jobs, rate) + p["step_seconds"]
    slow = np.where((jobs.trainer > 0) & (jobs.plain_model == 0), p["training_slow"], 1)
    parts = {name: seconds if name == "attention" else slow * seconds for name, seconds in parts.items()}
    whole = sum(parts.values())
    passes = 3 + full - low_rank
    host = (count + bubble(jobs.pipeline, jobs.chunks)) * passes * depth * _layer_host(jobs, p)
    parts["host"] = np.maximum(0, host - whole)
    parts["stragglers"] = whole * p["stragglers"] * np.log2(np.maximum(jobs.devices / 8, 1))
    # A critic trains whole, three passes, where a policy with adapters takes two.
    parts["critic"] = sum(parts.values()) * work.critic * np.where(low_rank, 1.5, 1)
    return parts


def step_seconds(work: Training, p: Values) -> Column:
    """Seconds of an optimizer step before stacks' own effects."""
    return np.asarray(sum(step_parts(work, p).values()))


def forward_seconds(work: Training, p: Values) -> Column:
    """Seconds of one micro batch's forward pass through one stage, logits of ``head_share`` of its positions in."""
    jobs, rate = work.jobs, rates(work.jobs, p)
    block = block_seconds(work, p, rate)
    layer = block.linear + block.attention + block.scores + block.elementwise
    layer = layer + 2 * block.collective + block.exchange + block.routing
    depth = jobs.layers / jobs.pipeline
    device = depth * layer + END_REDUCES / 2 * block.collective
    device = device + _head_seconds(jobs, p, rate, 1, p["loss_traffic"] * SCORED)
    return np.maximum(device, depth * _layer_host(jobs, p))


def scoring_seconds(work: Training, p: Values) -> Column:
    """Seconds of one forward pass over all samples of the iteration on the training devices."""
    jobs = work.jobs
    count = micro_batches(work.samples, jobs.data, jobs.micro_batch)
    body = (count + jobs.pipeline - 1) * forward_seconds(work, p)
    body = body * np.where(jobs.trainer > 0, p["scoring_slow"], 1)
    gathers = count * gather_seconds(jobs, p)
    waits = p["gather_exposed"] * gathers + overlapped(body, gathers, GATHER_SHARPNESS)
    return body + waits + count * fetch_once(work)


def swap_parts(work: Training, p: Values) -> tuple[Column, Column]:
    """Seconds in which a reference that waits in host memory takes the policy's place and gives it back, and in which
    each micro batch casts its fp32 weights."""
    jobs, moved = work.jobs, work.swapped / work.jobs.tensor
    count = micro_batches(work.samples, jobs.data, jobs.micro_batch)
    return SWAP_BYTES * moved / jobs.host_link, count * CAST_BYTES * moved / rates(jobs, p).memory


def fetch_once(work: Training) -> Column:
    """Seconds of fetching offloaded 16-bit weights once, every device its own share (arXiv 2104.07857, section 5.1.2);
    0 where they stay on the device."""
    share = local_parameters(work.jobs) / np.maximum(1, work.jobs.data)
    return np.where(work.offload_parameters > 0, 2 * share / work.jobs.host_link, 0)


def _head_seconds(jobs: Jobs, p: Values, rate: Rates, products: int, passes: Column | float) -> Column:
    """Output head and loss of a micro batch, in so many matrix products and passes over the logits."""
    shown = jobs.tokens * jobs.head_share
    head = products * blocks.head_flops(shown, jobs.hidden, jobs.vocab, jobs.tensor) / rate.dense
    # Bytes of the loss on the logits, forward and backward: five passes in fp32.
    loss = 20 * shown * jobs.vocab / jobs.tensor
    head = head + passes * loss / rate.memory
    return head * np.where(jobs.plain_model > 0, p["plain_model"], 1)


def _layer_host(jobs: Jobs, p: Values) -> Column:
    """Host work of one block in a forward pass: of a whole trainer's loop, or of a model that nothing compiled."""
    trainer = p["layer_host"] * np.where(jobs.experts > 1, p["expert_host"], 1)
    return np.where(jobs.trainer > 0, trainer, np.where(jobs.eager > 0, LAUNCH_FORWARD, 0))


def _gathers(jobs: Jobs, p: Values, count: Column, body: Column) -> Column:
    """ZeRO-3 gathers weights for either pass and scatters gradients, every micro batch (arXiv 1910.02054, 7.2.2).

    In a pipeline FSDP keeps them and does so once a step.
    """
    times = np.where((jobs.pipeline > 1) & (jobs.zero_engine == 0), 1, count)
    traffic = times * GATHER_PASSES * gather_seconds(jobs, p)
    return p["gather_exposed"] * traffic + overlapped(body, traffic, GATHER_SHARPNESS)


def _reduction(jobs: Jobs, p: Values, behind: Column, count: Column, body: Column) -> Column:
    """Gradients reduced and weights gathered once a step, in part behind the last micro batch's backward pass.

    ZeRO-2 reduces the gradients of every micro batch, since no rank keeps whole ones (arXiv 1910.02054, section 7.2.1):
    those before the last hide behind the passes that follow.
    """
    ranks, share = jobs.data * jobs.context, _reduced_share(jobs)
    experts = local_experts(jobs)
    whole = gather_bytes(share * (local_parameters(jobs) - experts), ranks)
    whole = whole + gather_bytes(share * experts, ranks / jobs.expert_parallel)
    seconds = whole / shard_bandwidth(jobs)
    reduced = seconds * np.where(jobs.zero_engine > 0, REDUCED_BYTES_ZERO, REDUCED_BYTES)
    kept_apart = (jobs.zero_engine > 0) & (jobs.zero_stage >= 1)
    reduced = reduced * np.where(kept_apart, ALL_REDUCED, 1)
    once = np.where(jobs.zero_stage >= 3, 0, reduced + UPDATED_BYTES * seconds)
    before = np.where((jobs.zero_stage == 2) & (jobs.pipeline == 1), (count - 1) * reduced, 0)
    hidden = overlapped(body, before, DATA_SHARPNESS)
    last = p["data_exposed"] * once + p["data_last"] * overlapped(behind, once, DATA_SHARPNESS)
    return last + p["data_exposed"] * before + p["data_last"] * hidden


def _optimizer(jobs: Jobs, rate: Rates) -> Column:
    """Adam on the device's share; or gradients down, Adam on the host, weights up."""
    # Experts are spread over expert-parallel ranks already: of the data-parallel ones the rest is left to share them.
    experts, shards = local_experts(jobs), np.where(jobs.zero_stage >= 1, jobs.data * jobs.context, 1)
    spread = np.maximum(1, shards / jobs.expert_parallel)
    updated = _reduced_share(jobs) * (local_parameters(jobs) - experts) / shards
    updated = updated + _reduced_share(jobs) * experts / spread
    link = np.where(jobs.zero_engine > 0, ZERO_LINK_BYTES, MEGATRON_LINK_BYTES)
    on_host = updated * (link / jobs.host_link + OPTIMIZER_TRAFFIC / HOST_MEMORY_BYTES_PER_SECOND)
    return np.where(jobs.offload_optimizer > 0, on_host, OPTIMIZER_TRAFFIC * updated / rate.memory)


def _reduced_share(jobs: Jobs) -> Column:
    """Of the parameters, those that are reduced and updated."""
    return np.where(jobs.low_rank > 0, LOW_RANK_SHARE, jobs.trained_share)
