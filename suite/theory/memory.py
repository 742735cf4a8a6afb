"""The least memory a device needs for one iteration under a layout: a bound that no recipe of states goes below.

The floor is the maximum over the phases, not their sum: what one phase needs can be freed before the next. It is
taken over the devices of a layout too: the fullest stage of a pipeline counts. Held to be resident throughout are the
weights, the reference policy and the optimizer states of mixed-precision Adam (ZeRO, arXiv 1910.02054, section 3.1).

Left out, so that the bound stays one: gradients outside training; layers that ZeRO-3 gathers or that are fetched from
the host; buffers, fragmentation, the device's own context; and every activation beyond one stored input per trainable
layer of one micro batch (2 s b h L with full recomputation in 16 bit: Korthikanti et al., arXiv 2205.05198, table 2).
"""

from itertools import chain
from typing import Literal

from suite.spec.base import Frozen
from suite.spec.device import Precision
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.phases import TIMED
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.lengths import drawn, fullest_micro_batch, generated_together, longest_sample, positions_held
from suite.theory.parameters import parameter_count
from suite.theory.shards import WEIGHT_BYTES, Stage, decoding_layout, largest_share, stages, states

LOGIT_BYTES = 4
Parts = dict[str, int]
#: 1: the floor of old bundles, whose generation holds the keys and values of one micro batch, and where an offloaded
#: optimizer leaves nothing on the device, whatever the layout
Rules = Literal[1, 2]


class MemoryFloor(Frozen):
    """``bytes`` = sum of ``parts`` = the largest of ``by_phase``, which has each phase's own fullest device."""

    bytes: int
    phase: str
    parts: dict[str, int]
    by_phase: dict[str, int]


def memory_floor(
    size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision, rules: Rules = 2
) -> MemoryFloor:
    """Bytes that the fullest device of ``layout`` needs at least in the most demanding phase.

    All rollouts of a replica are generated at once, as ``suite.theory.bandwidth`` counts them too, so generation holds
    the keys and values of all of them (2 per layer, key-value head, head dimension and position; the last token needs
    none); of samples of uneven length the moment with the most of them counts, in the fullest replica. An engine of its
    own (``layout.generation`` vllm) holds a second copy of the weights, and the keys and values of the longest sample
    at least, for it can take up the others one after the other; both in every phase unless it sleeps. Of split ranks
    the floor is that of those that train (``generating_floor`` has the others').

    Score, reference and training hold the fp32 logits of the response positions of one micro batch; of uneven samples
    the least that the largest micro batch can have. In training the gradients stand beside the logits only from the
    second micro batch on: with one micro batch they appear as the logits go, and the larger of the two counts. The same
    holds on a CPU.
    """
    devices = [
        _phases(size, workload, work, layout, precision, stage, rules) for stage in stages(size, workload, layout)
    ]
    fullest = {phase: max((device[phase] for device in devices), key=_total) for phase in devices[0]}
    phase = max(fullest, key=lambda name: _total(fullest[name]))
    return MemoryFloor(
        bytes=_total(fullest[phase]),
        phase=phase,
        parts=fullest[phase],
        by_phase={name: _total(parts) for name, parts in fullest.items()},
    )


def generating_floor(size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision) -> int:
    """Bytes that a rank needs at least that generates and does not train; 0 where all ranks do both.

    The policy's weights, whole, and keys and values as ``memory_floor`` counts them.
    """
    if layout.placement == "colocated":
        return 0
    shares = generated_together(workload, work, layout)
    if layout.generation == "vllm":
        positions = longest_sample(chain.from_iterable(shares))
    else:
        positions = max(positions_held(samples) for samples in shares)
    cache = positions * kv_bytes_per_position(size, size.layers, decoding_layout(layout), precision)
    return parameter_count(size).total * WEIGHT_BYTES[precision] + cache


def _total(parts: Parts) -> int:
    return sum(parts.values())


def _phases(
    size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision, stage: Stage, rules: Rules
) -> dict[str, Parts]:
    """What one device of a stage holds in each phase."""
    held = states(stage, layout, precision, gradients_offload=rules == 1 or layout.zero_stage > 0)
    resident = {"weights": held.weights, "reference": held.reference, "optimizer": held.optimizer}
    response_tokens, input_tokens = _micro_batch(workload, work, layout)
    logits = LOGIT_BYTES * response_tokens * largest_share(size.vocab, layout.tensor) if stage.last else 0
    inputs = WEIGHT_BYTES[precision] * input_tokens * size.hidden * stage.trainable_layers
    forward = {"activations": inputs, "logits": logits}
    if work.micro_batch < work.replica_batch:
        training = {"gradients": held.gradients, **forward}
    else:
        training = max(({"gradients": held.gradients}, forward), key=_total)
    beside = {
        "generate": _cache(size, workload, work, layout, precision, stage, rules),
        "score": {"logits": logits},
        "reference": {"logits": logits},
        "train": training,
    }
    if not workload.uses_reference:
        resident.pop("reference")
        beside.pop("reference")
    engine = _engine(size, workload, work, layout, precision)
    awake = {} if layout.engine_sleep else engine
    if engine:
        beside |= {"sync": {"engine": engine["engine"]}, "generate": engine}
    if layout.placement == "split":  # these devices train, and others generate
        beside |= {"sync": {}, "generate": {}}
    known = [phase.name for phase in TIMED if phase.name in beside or not phase.optional]
    known = [name for name in known if name != "reference" or workload.uses_reference]
    return {name: {**resident, **awake, **beside.get(name, {})} for name in known}


def kv_bytes_per_position(size: Shape, layers: int, layout: Layout, precision: Precision) -> int:
    """Keys and values of one position of one sequence in ``layers`` layers, on one tensor-parallel rank."""
    return 2 * layers * largest_share(size.kv_heads, layout.tensor) * size.head_dim * WEIGHT_BYTES[precision]


def _cache(
    size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision, stage: Stage, rules: Rules
) -> Parts:
    """Keys and values that one device of a stage holds while the training stack's own loop generates."""
    if layout.placement == "split":
        return {}
    per_position = kv_bytes_per_position(size, stage.layers, layout, precision)
    if rules == 1:
        return {"kv_cache": work.micro_batch * (workload.sequence_tokens - 1) * per_position}
    replicas = generated_together(workload, work, layout)
    return {"kv_cache": max(positions_held(samples) for samples in replicas) * per_position}


def _engine(size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision) -> Parts:
    """What a colocated generation engine holds on one device while it is awake; nothing where there is none.

    Its copy of the weights is divided at most as the policy's is by tensor and pipeline parallelism.
    """
    if layout.generation == "hf" or layout.placement == "split":
        return {}
    longest = longest_sample(chain.from_iterable(generated_together(workload, work, layout)))
    layers = size.layers // layout.pipeline
    weights = largest_share(parameter_count(size).total, layout.tensor, layout.pipeline)
    return {
        "engine": weights * WEIGHT_BYTES[precision],
        "kv_cache": longest * kv_bytes_per_position(size, layers, layout, precision),
    }


def _micro_batch(workload: Workload, work: Work, layout: Layout) -> tuple[int, int]:
    """Tokens of the largest micro batch: of responses, and what one rank stores of each layer's input (sequence
    parallelism keeps a share)."""
    parts = layout.tensor if layout.sequence_parallel else 1
    lengths = drawn(workload, work.global_rollouts, work.lengths)
    if lengths is None:
        tokens = largest_share(workload.sequence_tokens, parts)
        return work.micro_batch * workload.new_tokens, work.micro_batch * tokens
    whole = [prompt + response for prompt, response in zip(lengths.prompt, lengths.response, strict=True)]
    response = fullest_micro_batch(lengths.response, work, layout.balance)
    return response, largest_share(fullest_micro_batch(whole, work, layout.balance), parts)
