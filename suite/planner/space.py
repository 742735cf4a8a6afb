"""Every layout of a backend on a number of devices, as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from suite.planner.hardware import Hardware
from suite.planner.iteration import Iterations
from suite.planner.jobs import Column, Jobs
from suite.planner.profiles import Profile
from suite.spec.layout import Layout
from suite.spec.shape import Shape
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
_PIPELINE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Space:
    """Candidates: their work, and the choices that made them."""

    work: Iterations
    choices: dict[str, Column]

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
        )


def candidates(shape: Shape, workload: Workload, hardware: Hardware, profile: Profile, devices: Sequence[int]) -> Space:
    """Every layout of ``profile`` that divides shape and work on ``devices``; micro batches up to the workload's."""
    rows = [row for count in devices for row in _degrees(shape, workload, profile, count)]
    columns = {name: np.array([row[index] for row in rows], dtype=float) for index, name in enumerate(_COLUMNS)}
    return Space(iterations(shape, workload, hardware, profile, columns), columns)


_COLUMNS = (
    *("devices", "tensor", "pipeline", "data", "zero_stage", "distributed_optimizer", "recompute"),
    *("offload_optimizer", "offload_parameters", "gather_for_generation"),
    *("sequence_parallel", "rollouts", "micro_batch"),
)


def _degrees(shape: Shape, workload: Workload, profile: Profile, devices: int) -> list[tuple[int, ...]]:
    rollouts = workload.global_rollouts(devices)
    rows: list[tuple[int, ...]] = []
    for tensor, pipeline in product(_TENSOR if profile.tensor else (1,), _PIPELINE if profile.pipeline else (1,)):
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
        for micro, sharding, recompute in product(
            _micro_batches(batch, workload.micro_batch),
            _shardings(profile, data),
            (0, 3) if profile.recompute else (0,),
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
                )
            )
    return rows


def _micro_batches(batch: int, bound: int) -> list[int]:
    """Divisors of the batch up to the bound, largest first: the workload's own, and smaller ones that need less."""
    return [size for size in range(min(batch, bound), 0, -1) if batch % size == 0]


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
    shape: Shape, workload: Workload, hardware: Hardware, profile: Profile, columns: dict[str, Column]
) -> Iterations:
    """The PPO iterations of layouts given as columns (``_COLUMNS``)."""
    trained = shape.layers if workload.trainable_layers is None else workload.trainable_layers
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
        "sequence": workload.sequence_tokens,
        "head_share": workload.new_tokens / workload.sequence_tokens,
        "trained_share": trained / shape.layers,
        **dict.fromkeys(("chunks", "context"), 1.0),
        **dict.fromkeys(("precision", "packed"), 0.0),
        "low_rank": workload.lora_rank is not None,
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
    }
    degrees = list(zip(columns["tensor"].astype(int).tolist(), columns["pipeline"].astype(int).tolist(), strict=True))
    held = {each: held_parts(shape, workload, *each, profile) for each in sorted(set(degrees))}
    whole = held_parts(shape, workload, 1, 1, profile)
    return Iterations(
        jobs=Jobs.alike(common, varied),
        prompt=workload.prompt_tokens,
        new=workload.new_tokens,
        steps=workload.optimizer_steps * workload.ppo_epochs,
        reference_share=trained / shape.layers if workload.reference == "hydra" else 1.0,
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
        swapped=trained_weights(shape, workload) if profile.swaps_reference else 0,
    )


KINDS = ("trainable", "frozen", "reference", "critic")


def held_parts(shape: Shape, workload: Workload, tensor: int, pipeline: int, profile: Profile) -> dict[str, float]:
    """Parameters of one tensor parallel rank on the first and the last stage, by kind (``suite.theory.shards.Stage``).

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
    return parts


def _undivided(shape: Shape, workload: Workload, stage: Stage, profile: Profile) -> dict[str, int]:
    """Parameters of a stage, by kind, that every tensor parallel rank holds whole."""
    count = parameter_count(shape)
    llama = shape.architecture == "llama"
    block = (2 if llama else 6) * shape.hidden
    norm, ends = count.final_norm * stage.last, count.positions * stage.first
    head = 0 if profile.splits_value_head or workload.critic is not None else count.value_head * stage.last
    frozen_layers = stage.layers - stage.trainable_layers
    everything = workload.trainable_layers is None
    return {
        "trainable": stage.trainable_layers * block + norm + head + (ends if everything else 0),
        "frozen": frozen_layers * block + (0 if everything else ends),
        "reference": stage.layers * block + norm + ends if workload.reference == "full" else 0,
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
