"""Every layout of a backend on a number of devices, as columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from suite.planner.hardware import Hardware
from suite.planner.held import KINDS, critic_share, held_parts, trained_weights
from suite.planner.lengths import Decoding, Drawn, decoding, drawn, passes
from suite.planner.memory import MOST_AT_ONCE
from suite.planner.parameters import Parameters
from suite.planner.profiles import Profile
from suite.planner.work import Column, Jobs, Pairs, Training
from suite.planner.work import Generation as Generating
from suite.spec.layout import Generation, Layout
from suite.spec.shape import Shape
from suite.theory.parameters import parameter_count

if TYPE_CHECKING:
    from suite.planner.ask import Question

TENSOR = (1, 2, 4, 8, 16)
_WIDER = (32, 64, 128)  # expert parallel degrees beyond tensor parallel ones
_PIPELINE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_CHUNKS = (1, 2, 4)
#: A context parallel rank has at least so many tokens of the longest sample: fewer are not worth dividing.
_LEAST_CONTEXT = 4096


@dataclass(frozen=True)
class Manner:
    """What of a layout is as it is asked for, not searched over."""

    generation: Generation = "hf"
    engine_sleep: bool = False
    packing: bool = False
    balance: bool = False
    engine_memory: int = 0
    bucket_elements: int = 0

    @classmethod
    def of(cls, layout: Layout) -> "Manner":
        return cls(**{each.name: getattr(layout, each.name) for each in fields(cls)})


USUAL = Manner()
#: Fields of a layout that are searched over; the others stay as they were.
PLANNED = {
    *("tensor", "pipeline", "data", "sequence_parallel", "zero_stage", "distributed_optimizer", "recompute"),
    *("offload_optimizer", "offload_parameters", "gather_for_generation", "expert"),
}


@dataclass(frozen=True)
class Space:
    """Candidates: their work, who generates as a run of each layout has it, and the choices that made them.

    ``sample_tokens`` are real tokens of a mean sample, prompt and response.
    """

    work: Training
    gen: Generating
    pairs: Pairs
    sample_tokens: Column
    choices: dict[str, Column]
    manner: Manner

    def __len__(self) -> int:
        return len(self.work)

    def layout(self, index: int, node_devices: int, devices: int | None = None, **engine: Any) -> Layout:
        """One candidate as a layout of the suite: on ``devices`` in all, where an engine of its own has some."""
        pick: dict[str, Any] = {name: int(column[index]) for name, column in self.choices.items()}
        whole = devices or pick["devices"]
        per_node = max(size for size in range(1, min(whole, node_devices) + 1) if whole % size == 0)
        body = {name: pick[name] for name in PLANNED} | vars(self.manner) | engine
        # A layout of the suite has no context parallel ranks: they hold what data parallel ones do.
        body |= {"data": pick["data"] * pick["context"], "recompute": "full" if pick["recompute"] else "none"}
        return Layout.model_validate(body | {"nodes": whole // per_node, "devices_per_node": per_node})

    def label(self, index: int) -> str:
        """``tp2 pp4 dp8 cp2 vp2``: the layout, with its context parallel degree and the parts of a stage."""
        data, context, chunks = (int(self.choices[name][index]) for name in ("data", "context", "chunks"))
        own = self.layout(index, 8).model_copy(update={"data": data}).label()
        return own + (f" cp{context}" if context > 1 else "") + (f" vp{chunks}" if chunks > 1 else "")


def candidates(asked: "Question", devices: Sequence[int]) -> Space:
    """Every layout of the backend that divides shape and work on ``devices``; micro batches up to the workload's."""
    rows = [row for count in devices for row in _degrees(asked, count)]
    columns = {name: np.array([row[index] for row in rows], dtype=float) for index, name in enumerate(_COLUMNS)}
    return space_of(asked, columns)


_COLUMNS = (
    *("devices", "tensor", "pipeline", "data"),
    *("zero_stage", "distributed_optimizer", "offload_optimizer", "offload_parameters", "gather_for_generation"),
    *("recompute", "sequence_parallel", "rollouts", "micro_batch", "expert", "context", "chunks"),
)


def _degrees(asked: "Question", devices: int) -> list[tuple[int, ...]]:
    shape, workload, profile = asked.shape, asked.workload, asked.profile
    rollouts = workload.global_rollouts(devices)
    rows: list[tuple[int, ...]] = []
    if rollouts % workload.group:
        return rows
    # an engine holds whole layers on every rank
    pipelines = _PIPELINE if profile.pipeline and asked.manner.generation == "hf" else (1,)
    tensors = TENSOR if profile.tensor and (shape.experts is None or profile.expert_tensor) else (1,)
    contexts = [each for each in TENSOR if each == 1 or workload.sequence_tokens >= each * _LEAST_CONTEXT]
    contexts = contexts if profile.context else [1]
    for tensor, pipeline, context in product(tensors, pipelines, contexts):
        if shape.heads % tensor or shape.kv_heads % tensor or shape.ffn % tensor or shape.layers % pipeline:
            continue
        data, rest = divmod(devices, tensor * pipeline * context)
        if rest or rollouts % (data * workload.optimizer_steps):
            continue
        degrees, replica = (devices, tensor, pipeline, data), rollouts // data
        batch = replica // workload.optimizer_steps
        sequence = int(tensor > 1 and workload.sequence_tokens % tensor == 0)
        # The workload's own micro batch first, then smaller ones, which need less memory.
        micro_batches = [size for size in range(min(batch, workload.micro_batch), 0, -1) if batch % size == 0]
        for micro, sharding, recompute, expert, chunks in product(
            micro_batches,
            _shardings(profile, data * context),
            (0, 3) if profile.recompute else (0,),
            _experts(shape, profile, data),
            _CHUNKS if profile.interleaves and pipeline > 1 else (1,),
        ):
            if chunks > 1 and (shape.layers % (pipeline * chunks) or batch // micro % pipeline):
                continue
            rows.append((*degrees, *sharding, recompute, sequence, replica, micro, expert, context, chunks))
    return rows


def _experts(shape: Shape, profile: Profile, data: int) -> list[int]:
    """Expert parallel degrees: data parallel ranks over which the experts can be spread evenly."""
    if shape.experts is None or not profile.experts:
        return [1]
    return [degree for degree in TENSOR + _WIDER if data % degree == 0 and shape.experts.count % degree == 0]


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


def space_of(asked: "Question", columns: dict[str, Column], lengths: Mapping[int, Drawn] | None = None) -> Space:
    """The iterations of layouts given as columns (``_COLUMNS``).

    ``lengths`` of samples by number of devices; left out, they are drawn.
    """
    shape, workload, profile = asked.shape, asked.workload, asked.profile
    counts = [int(count) for count in columns["devices"]]
    known = lengths or {count: drawn(workload, workload.global_rollouts(count)) for count in set(counts)}
    jobs, largest = _jobs(asked, columns, known)
    expert = columns["expert"]
    degrees = [(int(t), int(p), int(e)) for t, p, e in zip(columns["tensor"], columns["pipeline"], expert, strict=True)]
    held = {each: held_parts(shape, workload, each[0], each[1], profile, each[2]) for each in sorted(set(degrees))}
    whole = held_parts(shape, workload, 1, 1, profile)
    trained = shape.layers if workload.trainable_layers is None else workload.trainable_layers
    reference = trained / shape.layers if workload.reference == "hydra" else 1.0
    effects = effects_of(asked.hardware, profile, asked.parameters)
    work = Training(
        jobs=jobs,
        largest=largest,
        held={kind: np.array([held[each][kind] for each in degrees], dtype=float) for kind in whole},
        samples=columns["rollouts"] * columns["data"],
        steps=workload.optimizer_steps * workload.ppo_epochs,
        weights=float(parameter_count(shape).total),
        trained=int(whole["trainable_first"] + whole["critic_first"]),
        replica=int(sum(whole[f"{kind}_first"] for kind in KINDS)),
        largest_tensor=max(shape.hidden * shape.ffn, shape.vocab * shape.hidden),
        old=1.0,
        reference=reference if workload.uses_reference else 0.0,
        critic=critic_share(shape, workload),
        reward=asked.reward,
        swapped=trained_weights(shape, workload) if profile.swaps_reference and workload.uses_reference else 0,
        offload_parameters=columns["offload_parameters"],
        bucket=float(asked.manner.bucket_elements),
        gathers_once=columns["gather_for_generation"],
        regathers=float(profile.gathers_to_decode),
        effects=effects,
    )
    gen = _generating(asked, jobs, columns, decoding(known, columns), effects)
    sample_tokens = np.array([known[count].mean for count in counts])
    return Space(work, gen, Pairs.each(len(jobs)), sample_tokens, columns, asked.manner)


def effects_of(hardware: Hardware, profile: Profile, parameters: Parameters) -> dict[str, float]:
    """Logarithms of factors on phases: the stack's, by training steps and by iterations, and what own runs taught."""
    device, known = hardware.name.split("-")[0], profile.traits
    groups = {"family": known.family, "framework": known.framework, "framework|device": f"{known.framework}|{device}"}
    step, learnt = parameters.effect(groups), parameters.phases
    found = {}
    for phase, own in PHASE_OF.items():
        of_stack = parameters.effect({phase: profile.stack}) + parameters.effect({phase: f"{profile.stack}|{device}"})
        found[phase] = (step if phase in ("training", "scoring") else 0.0) + of_stack + math.log(learnt.get(own, 1.0))
    return found


#: Kinds of effects, and the phase of a run that tells of each.
PHASE_OF = {"training": "train", "scoring": "score", "generation": "generate", "sync": "sync"}


def _jobs(asked: "Question", columns: dict[str, Column], lengths: Mapping[int, Drawn]) -> tuple[Jobs, Jobs]:
    """Optimizer steps with mean passes of the fullest replica, and with the largest pass of all."""
    shape, workload, profile = asked.shape, asked.workload, asked.profile
    mean, most = passes(lengths, columns, asked.manner.packing, asked.manner.balance)
    trained = shape.layers if workload.trainable_layers is None else workload.trainable_layers
    common = {
        **asked.hardware.columns(),
        **profile.traits.columns(),
        **{name: getattr(shape, name) for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")},
        "gated": shape.rotary,
        "trained_share": trained / shape.layers,
        "precision": profile.fp8,
        "packed": 0.0,
        "low_rank": workload.lora_rank is not None,
        "width": shape.heads * shape.head_dim,
        "experts": shape.experts.count if shape.experts else 1,
        "experts_per_token": shape.experts.per_token if shape.experts else 1,
        "tables": 1 if shape.tied_embeddings else 2,
    }
    own = ("devices", "tensor", "pipeline", "context", "chunks", "micro_batch", "sequence_parallel", "recompute")
    varied = {
        **{name: columns[name] for name in (*own, "offload_optimizer")},
        "global_batch": columns["rollouts"] * columns["data"] / workload.optimizer_steps,
        "zero_stage": np.maximum(columns["zero_stage"], columns["distributed_optimizer"]),
        "expert_parallel": columns["expert"],
        "sequence": mean.tokens,
        "attended": mean.attended,
        "head_share": mean.head_share,
    }
    jobs = Jobs.alike(common, varied)
    return jobs, replace(jobs, sequence=most.tokens, attended=most.attended, head_share=most.head_share)


def _generating(
    asked: "Question", jobs: Jobs, columns: dict[str, Column], decoding: Decoding, effects: Mapping[str, float]
) -> Generating:
    """Each replica's own generation: in the stack's own loop, or by an engine beside it, by the samples that it has."""
    rollouts, engine = columns["rollouts"], asked.manner.generation == "vllm"
    response, prompt = decoding.steps / rollouts + 1, decoding.prompts / rollouts
    # Of the lognormal lengths that read as many positions as these samples do.
    squared = 2 * np.maximum(decoding.read / rollouts - response * prompt, 0) / response**2
    return Generating(
        jobs=jobs,
        devices=jobs.tensor * jobs.pipeline,
        tensor=jobs.tensor * jobs.pipeline,
        engine=float(engine),
        weight_bytes=np.where(jobs.precision > 0, 1.0, 2.0),
        samples=rollouts,
        prompt=prompt if engine else decoding.prompt,
        response=response,
        longest=decoding.new,
        spread=np.sqrt(np.log(np.maximum(1.0, squared))),
        group=float(asked.workload.group),
        cache_share=asked.manner.engine_memory / 100,
        places=float(MOST_AT_ONCE),
        sleeps=float(asked.manner.engine_sleep),
        tools=asked.tools,
        effects=effects,
    )
