"""Every layout of a backend on a number of devices, as columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from suite.planner.hardware import Hardware
from suite.planner.iteration import Iterations
from suite.planner.jobs import Column, Jobs
from suite.planner.lengths import Decoding, Drawn, Pass, decoding, drawn, even_decoding, passes
from suite.planner.profiles import Profile
from suite.spec.layout import Generation, Layout
from suite.spec.shape import QK_NORM, Shape
from suite.spec.workload import Workload
from suite.theory.adapters import critic_shape
from suite.theory.parameters import (
    layer_matrix_elements,
    parameter_count,
    trainable_count,
    value_head_parameters,
)
from suite.theory.shards import Stage, stages

_TENSOR = (1, 2, 4, 8, 16)
_WIDER = (32, 64, 128)  # expert parallel degrees beyond tensor parallel ones
_PIPELINE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Manner:
    """What of a layout is as it is asked for, not searched over."""

    generation: Generation = "hf"
    engine_sleep: bool = False
    packing: bool = False
    balance: bool = False

    @classmethod
    def of(cls, layout: Layout) -> "Manner":
        return cls(layout.generation, layout.engine_sleep, layout.packing, layout.balance)


USUAL = Manner()


@dataclass(frozen=True)
class Space:
    """Candidates: their work, and the choices that made them."""

    work: Iterations
    choices: dict[str, Column]
    manner: Manner = USUAL

    def layout(self, index: int, node_devices: int) -> Layout:
        """One candidate as a layout of the suite."""
        pick = {name: int(column[index]) for name, column in self.choices.items()}
        devices = pick["devices"]
        per_node = max(size for size in range(1, min(devices, node_devices) + 1) if devices % size == 0)
        return Layout(
            nodes=devices // per_node,
            devices_per_node=per_node,
            tensor=pick["tensor"],
            pipeline=pick["pipeline"],
            data=pick["data"],
            sequence_parallel=bool(pick["sequence_parallel"]),
            zero_stage=pick["zero_stage"],
            distributed_optimizer=bool(pick["distributed_optimizer"]),
            recompute="full" if pick["recompute"] else "none",
            offload_optimizer=bool(pick["offload_optimizer"]),
            offload_parameters=bool(pick["offload_parameters"]),
            gather_for_generation=bool(pick["gather_for_generation"]),
            expert=pick.get("expert", 1),
            **vars(self.manner),
        )


def candidates(
    shape: Shape,
    workload: Workload,
    hardware: Hardware,
    profile: Profile,
    devices: Sequence[int],
    manner: Manner = USUAL,
) -> Space:
    """Every layout of ``profile`` that divides shape and work on ``devices``; micro batches up to the workload's."""
    whole_layers = manner.generation == "vllm"  # it holds whole layers on every rank
    rows = [row for count in devices for row in _degrees(shape, workload, profile, count, whole_layers)]
    columns = {name: np.array([row[index] for row in rows], dtype=float) for index, name in enumerate(_COLUMNS)}
    return Space(iterations(shape, workload, hardware, profile, columns, manner), columns, manner)


_COLUMNS = (
    *("devices", "tensor", "pipeline", "data", "zero_stage", "distributed_optimizer", "recompute"),
    *("offload_optimizer", "offload_parameters", "gather_for_generation"),
    *("sequence_parallel", "rollouts", "micro_batch", "expert"),
)


def _degrees(
    shape: Shape, workload: Workload, profile: Profile, devices: int, whole_layers: bool
) -> list[tuple[int, ...]]:
    rollouts = workload.global_rollouts(devices)
    rows: list[tuple[int, ...]] = []
    if rollouts % workload.group:
        return rows
    pipelines = _PIPELINE if profile.pipeline and not whole_layers else (1,)
    # Expert layers of megatron-core are not split by tensor parallelism where responses are generated token by token.
    tensors = _TENSOR if profile.tensor and shape.experts is None else (1,)
    for tensor, pipeline in product(tensors, pipelines):
        if shape.heads % tensor or shape.kv_heads % tensor or shape.ffn % tensor or shape.layers % pipeline:
            continue
        if devices % (tensor * pipeline):
            continue
        data = devices // (tensor * pipeline)
        if rollouts % (data * workload.optimizer_steps):
            continue
        replica = rollouts // data
        batch = replica // workload.optimizer_steps
        sequence = int(tensor > 1 and workload.sequence_tokens % tensor == 0)
        for micro, sharding, recompute, expert in product(
            _micro_batches(batch, workload.micro_batch),
            _shardings(profile, data),
            (0, 3) if profile.recompute else (0,),
            _experts(shape, profile, data),
        ):
            stage, distributed, optimizer, parameters, once = sharding
            rows.append(
                (
                    devices,
                    tensor,
                    pipeline,
                    data,
                    stage,
                    distributed,
                    recompute,
                    optimizer,
                    parameters,
                    once,
                    sequence,
                    replica,
                    micro,
                    expert,
                )
            )
    return rows


def _micro_batches(batch: int, bound: int) -> list[int]:
    """Divisors of the batch up to the bound, largest first: the workload's own, and smaller ones that need less."""
    return [size for size in range(min(batch, bound), 0, -1) if batch % size == 0]


def _experts(shape: Shape, profile: Profile, data: int) -> list[int]:
    """Expert parallel degrees: data parallel ranks over which the experts can be spread evenly."""
    if shape.experts is None or not profile.experts:
        return [1]
    return [degree for degree in _TENSOR + _WIDER if data % degree == 0 and shape.experts.count % degree == 0]


def _shardings(profile: Profile, data: int) -> list[tuple[int, int, int, int, int]]:
    """ZeRO stage, distributed optimizer, offloaded optimizer, offloaded parameters, gathered once for generation."""
    if not profile.zero_stages:
        both = data > 1 and not profile.always_sharded
        plain = [(0, 0, 0, 0, 0), (0, 1, 0, 0, 0)] if both else [(0, 1, 0, 0, 0)]
        return plain + ([(0, 1, 1, 0, 0)] if profile.offload_optimizer else [])
    # One replica has nothing to shard: stages differ by name alone there.
    stages = profile.zero_stages if data > 1 else (0,)
    ways = {stage: (1, 0) if stage == 3 and profile.gathers_once else (0,) for stage in stages}
    plain = [(stage, 0, 0, 0, once) for stage in stages for once in ways[stage]]
    offloading = [stage for stage in stages if stage] if data > 1 else [2]
    offloaded = [(stage, 0, 1, 0, once) for stage in offloading for once in ways.get(stage, (0,))]
    host = offloaded if profile.offload_optimizer else []
    return plain + host + ([(3, 0, 1, 1, 0)] if profile.offload_parameters else [])


def iterations(
    shape: Shape,
    workload: Workload,
    hardware: Hardware,
    profile: Profile,
    columns: dict[str, Column],
    manner: Manner = USUAL,
    lengths: Mapping[int, Drawn] | None = None,
) -> Iterations:
    """The iterations of layouts given as columns (``_COLUMNS``).

    ``lengths`` of samples by number of devices; left out, uneven ones are drawn.
    """
    trained = shape.layers if workload.trainable_layers is None else workload.trainable_layers
    expert = columns.get("expert", np.ones_like(columns["devices"]))
    uneven = _uneven(workload, columns, lengths)
    mean, largest = _passes(workload, columns, manner, uneven)
    common = {
        **hardware.columns(),
        **profile.traits.columns(),
        "layers": shape.layers,
        "hidden": shape.hidden,
        "ffn": shape.ffn,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "vocab": shape.vocab,
        "gated": shape.gated_mlp,
        "trained_share": trained / shape.layers,
        **dict.fromkeys(("chunks", "context"), 1.0),
        **dict.fromkeys(("precision", "packed"), 0.0),
        "low_rank": workload.lora_rank is not None,
        "width": shape.heads * shape.head_dim,
        "experts": shape.experts.count if shape.experts else 1,
        "experts_per_token": shape.experts.per_token if shape.experts else 1,
        "tables": 1 if shape.tied_embeddings else 2,
    }
    varied = {
        "global_batch": columns["rollouts"] * columns["data"] / workload.optimizer_steps,
        "micro_batch": columns["micro_batch"],
        "devices": columns["devices"],
        "tensor": columns["tensor"],
        "pipeline": columns["pipeline"],
        "zero_stage": np.maximum(columns["zero_stage"], columns["distributed_optimizer"]),
        "sequence_parallel": columns["sequence_parallel"],
        "recompute": columns["recompute"],
        "offload_optimizer": columns["offload_optimizer"],
        "expert_parallel": expert,
        "sequence": mean.tokens,
        "attended": mean.attended,
        "head_share": mean.head_share,
    }
    jobs = Jobs.alike(common, varied)
    fullest = replace(jobs, sequence=largest.tokens, attended=largest.attended, head_share=largest.head_share)
    degrees = [(int(t), int(p), int(e)) for t, p, e in zip(columns["tensor"], columns["pipeline"], expert, strict=True)]
    held = {each: held_parts(shape, workload, each[0], each[1], profile, each[2]) for each in sorted(set(degrees))}
    whole = held_parts(shape, workload, 1, 1, profile)
    reference = trained / shape.layers if workload.reference == "hydra" else 1.0
    return Iterations(
        jobs=jobs,
        largest=fullest,
        decoding=_decoding(workload, columns, uneven),
        sample_tokens=_sample_tokens(workload, columns, uneven),
        steps=workload.optimizer_steps * workload.ppo_epochs,
        reference_share=reference if workload.uses_reference else 0.0,
        rollouts=columns["rollouts"],
        offload_optimizer=columns["offload_optimizer"],
        offload_parameters=columns["offload_parameters"],
        gathers_to_decode=profile.gathers_to_decode,
        gathers_once=columns["gather_for_generation"],
        held={kind: np.array([held[each][kind] for each in degrees], dtype=float) for kind in whole},
        trained=int(whole["trainable_first"] + whole["critic_first"]),
        weights=int(sum(whole[f"{kind}_first"] for kind in KINDS)),
        largest_tensor=max(shape.hidden * shape.ffn, shape.vocab * shape.hidden),
        critic_share=_critic_share(shape, workload),
        swapped=trained_weights(shape, workload) if profile.swaps_reference and workload.uses_reference else 0,
        engine=manner.generation == "vllm",
        engine_sleeps=manner.engine_sleep,
    )


def _uneven(
    workload: Workload, columns: Mapping[str, Column], given: Mapping[int, Drawn] | None
) -> Mapping[int, Drawn] | None:
    """Lengths of the samples by number of devices; ``None`` where all are even."""
    if given is not None or not workload.uneven:
        return given
    counts = sorted({int(count) for count in columns["devices"]})
    every = {count: drawn(workload, workload.global_rollouts(count)) for count in counts}
    return {count: found for count, found in every.items() if found is not None}


def _passes(
    workload: Workload, columns: Mapping[str, Column], manner: Manner, uneven: Mapping[int, Drawn] | None
) -> tuple[Pass, Pass]:
    if uneven:
        return passes(uneven, columns, manner.packing, manner.balance)
    like = np.ones_like(columns["devices"])
    even = Pass(workload.sequence_tokens * like, workload.sequence_tokens * like, workload.new_tokens * like)
    return even, even


def _decoding(workload: Workload, columns: Mapping[str, Column], uneven: Mapping[int, Drawn] | None) -> Decoding:
    if uneven:
        return decoding(uneven, columns)
    return even_decoding(workload.prompt_tokens, workload.new_tokens, columns["rollouts"])


def _sample_tokens(workload: Workload, columns: Mapping[str, Column], uneven: Mapping[int, Drawn] | None) -> Column:
    if uneven:
        return np.array([uneven[int(count)].mean for count in columns["devices"]])
    return np.full(len(columns["devices"]), float(workload.sequence_tokens))


KINDS = ("trainable", "frozen", "reference", "critic")


def held_parts(
    shape: Shape, workload: Workload, tensor: int, pipeline: int, profile: Profile, expert: int = 1
) -> dict[str, float]:
    """Parameters of one tensor parallel rank on the first and the last stage, by kind (``suite.theory.shards.Stage``).

    Of experts a rank holds its share of ``expert``; ``sharded`` is what trains with all of them, whose optimizer states
    data parallel ranks divide.

    As stacks hold them, which is more than the even share of ``suite.theory``: norms, learned positions and the biases
    of row-parallel products whole on each rank, the vocabulary padded, and on Megatron's last stage a copy of the tied
    embedding that trains like the first stage's.
    """
    layout = Layout(devices_per_node=pipeline, pipeline=pipeline, data=1)
    both = (profile.vocabulary_multiple, tensor)
    multiple = math.prod(both) if profile.pads_each_rank else math.lcm(*both)
    padded = shape.model_copy(update={"vocab": -(-shape.vocab // multiple) * multiple})
    each = stages(padded, workload, layout)
    parts: dict[str, float] = {}
    for end, stage in (("first", each[0]), ("last", each[-1])):
        held = {kind: getattr(stage, kind) for kind in KINDS}
        undivided = _undivided(shape, workload, stage, profile)
        if profile.gradient_buffer and stage.last and not stage.first and workload.trainable_layers is None:
            copy = padded.vocab * shape.hidden if shape.tied_embeddings else 0
            held |= {"trainable": stage.trainable + copy, "frozen": stage.frozen - copy}
        parts |= {
            f"{kind}_{end}": (count - undivided.get(kind, 0)) / tensor + undivided.get(kind, 0)
            for kind, count in held.items()
        }
        parts[f"sharded_{end}"] = parts[f"trainable_{end}"]
        elsewhere = (1 - 1 / expert) * _expert_elements(shape) / tensor
        if workload.lora_rank is None:
            parts[f"trainable_{end}"] -= elsewhere * stage.trainable_layers
            parts[f"frozen_{end}"] -= elsewhere * (stage.layers - stage.trainable_layers)
        else:
            parts[f"frozen_{end}"] -= elsewhere * stage.layers
        if stage.reference:
            shared = stage.layers - stage.trainable_layers if workload.reference == "hydra" else 0
            parts[f"reference_{end}"] -= elsewhere * (stage.layers - shared)
    return parts


def _expert_elements(shape: Shape) -> int:
    """Of one block: elements of all experts; 0 where it has none."""
    return shape.experts.count * (2 + shape.gated_mlp) * shape.hidden * shape.ffn if shape.experts else 0


def _undivided(shape: Shape, workload: Workload, stage: Stage, profile: Profile) -> dict[str, int]:
    """Parameters of a stage, by kind, that every tensor parallel rank holds whole."""
    count = parameter_count(shape)
    block = 2 * shape.hidden if shape.rotary else 6 * shape.hidden
    block += 2 * shape.head_dim if shape.architecture in QK_NORM else 0
    block += shape.experts.count * shape.hidden if shape.experts else 0  # the router
    norm, ends = count.final_norm * stage.last, count.positions * stage.first
    own_head = workload.uses_values and workload.critic is None
    head = count.value_head * stage.last if own_head and not profile.splits_value_head else 0
    frozen_layers = stage.layers - stage.trainable_layers
    everything = workload.trainable_layers is None
    return {
        "trainable": stage.trainable_layers * block + norm + head + (ends if everything else 0),
        "frozen": frozen_layers * block + (0 if everything else ends),
        "reference": stage.layers * block + norm + ends if workload.reference == "full" and stage.reference else 0,
    }


def trained_weights(shape: Shape, workload: Workload) -> int:
    """Parameters of the language model that train: what a reference in host memory is a copy of."""
    return trainable_count(shape, workload.trainable_layers) - value_head_parameters(shape.hidden)


def _critic_share(shape: Shape, workload: Workload) -> float:
    """Matrix elements of a separate critic over the policy's: its share of the work per token."""
    if workload.critic is None:
        return 0.0
    trunk = critic_shape(shape, workload.critic)
    return trunk.layers * layer_matrix_elements(trunk) / (shape.layers * layer_matrix_elements(shape))
