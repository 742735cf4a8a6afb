"""The least memory a device needs for one PPO iteration under a layout: a bound that no recipe of states goes below.

The floor is the maximum over the phases, not their sum: what one phase needs can be freed before the next. It is
taken over the devices of a layout too: the fullest stage of a pipeline counts. Held to be resident throughout are the
weights, the reference policy and the optimizer states of mixed-precision Adam (ZeRO, arXiv 1910.02054, section 3.1).

Left out, so that the bound stays one: gradients outside training; layers that ZeRO-3 gathers or that are fetched from
the host; buffers, fragmentation, the device's own context; and every activation beyond one stored input per trainable
layer of one micro batch (2 s b h L with full recomputation in 16 bit: Korthikanti et al., arXiv 2205.05198, table 2).
"""

from __future__ import annotations

from typing import Literal

from suite.spec.base import Frozen
from suite.spec.device import Precision
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.phases import TIMED
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.shards import WEIGHT_BYTES, Stage, largest_share, stages, states

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
    none). Score, reference and training hold the fp32 logits of the response positions of one
    micro batch. In training the gradients stand beside the logits only from the second micro batch on: with one
    micro batch they appear as the logits go, and the larger of the two counts. The same holds on a CPU.
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


def _total(parts: Parts) -> int:
    return sum(parts.values())


def _phases(
    size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision, stage: Stage, rules: Rules
) -> dict[str, Parts]:
    """What one device of a stage holds in each phase."""
    held = states(stage, layout, precision, gradients_offload=rules == 1 or layout.zero_stage > 0)
    sequences = work.micro_batch if rules == 1 else work.replica_rollouts
    resident = {"weights": held.weights, "reference": held.reference, "optimizer": held.optimizer}
    logits = _logits(size, workload, work, layout) if stage.last else 0
    inputs = _stored_inputs(size, workload, work, layout, precision, stage)
    forward = {"activations": inputs, "logits": logits}
    if work.micro_batch < work.replica_batch:
        training = {"gradients": held.gradients, **forward}
    else:
        training = max(({"gradients": held.gradients}, forward), key=_total)
    beside = {
        "generate": {"kv_cache": sequences * _kv_cache(size, workload, layout, precision, stage)},
        "score": {"logits": logits},
        "reference": {"logits": logits},
        "train": training,
    }
    if layout.placement == "split":  # these devices train, and others generate
        del beside["generate"]
    known = [phase.name for phase in TIMED if phase.name in beside or not phase.optional]
    return {name: {**resident, **beside.get(name, {})} for name in known}


def kv_bytes_per_position(size: Shape, layers: int, layout: Layout, precision: Precision) -> int:
    """Keys and values of one position of one sequence in ``layers`` layers, on one tensor-parallel rank."""
    return 2 * layers * largest_share(size.kv_heads, layout.tensor) * size.head_dim * WEIGHT_BYTES[precision]


def _kv_cache(size: Shape, workload: Workload, layout: Layout, precision: Precision, stage: Stage) -> int:
    """Of one sequence."""
    return (workload.sequence_tokens - 1) * kv_bytes_per_position(size, stage.layers, layout, precision)


def _logits(size: Shape, workload: Workload, work: Work, layout: Layout) -> int:
    return LOGIT_BYTES * work.micro_batch * workload.new_tokens * largest_share(size.vocab, layout.tensor)


def _stored_inputs(
    size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision, stage: Stage
) -> int:
    """One input per trainable layer; of each, sequence parallelism keeps a share."""
    tokens = largest_share(workload.sequence_tokens, layout.tensor if layout.sequence_parallel else 1)
    return WEIGHT_BYTES[precision] * work.micro_batch * tokens * size.hidden * stage.trainable_layers
