"""The two sides of an iteration as columns: layouts that train, and engines that generate.

All that the search knows of speed comes from ``suite.planner.rl_iteration``, and what training takes of memory from
what the suite's backends hold (``suite.planner.iteration_memory``): a better model of either changes no more than this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suite.planner.formulas.engine import MOST_AT_ONCE, POOL_SHARE_OF_FREE
from suite.planner.hardware import Hardware
from suite.planner.host_memory import host_memory
from suite.planner.iteration_memory import phase_memory
from suite.planner.jobs import Column, Jobs
from suite.planner.lengths import Drawn, drawn
from suite.planner.parameters import Parameters
from suite.planner.profiles import Profile
from suite.planner.rl_iteration import Generation, RLWork, generation_parts, scoring_seconds, training_parts
from suite.planner.rl_memory import ENGINE_WORKSPACE, pool_bytes, whole_parameters
from suite.planner.rl_parameters import RLParameters
from suite.planner.space import Manner, Space, candidates
from suite.planner.table import stack_factor
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.parameters import parameter_count

#: Share of its own device that an engine takes when nothing else is on it: vLLM's default (``gpu_memory_utilization``).
OWN_SHARE = 0.9
TENSOR_DEGREES = (1, 2, 4, 8, 16)
#: Effects on phases of the RL model, by the phase of a run that tells of each; and those that are the training stack's.
PHASE_OF: Mapping[str, str] = {"training": "train", "scoring": "score", "generation": "generate", "sync": "sync"}
_OF_STACK = ("training", "scoring")
#: What of the generating phase is no state of training: it belongs to the stack's own loop.
_OF_GENERATING = ("activations", "logits", "KV cache", "fragmentation", "gathered layers")


@dataclass(frozen=True)
class Training:
    """Layouts that score and train: seconds by phase, and bytes on the fullest device.

    ``memory``: the most that a phase takes. ``standing``: what stays while an engine generates on the same device.
    ``work`` has the jobs of all of them, with no particular engine beside.
    """

    space: Space
    work: RLWork
    devices: Column
    scoring: Column
    trained: Column
    parts: Mapping[str, Column]
    memory: Column
    standing: Column
    host: Column

    def __len__(self) -> int:
        return len(self.devices)


@dataclass(frozen=True)
class Engines:
    """Generation engines: each replica of ``tensor`` devices generates its part of the samples of an iteration.

    ``jobs`` are the model on their devices; ``weights`` bytes of a device.
    """

    jobs: Jobs
    lengths: Mapping[str, float]
    samples: int
    devices: Column
    tensor: Column
    weights: Column

    def __len__(self) -> int:
        return len(self.devices)

    def side(self, index: Column, pool_share: Any) -> Generation:
        """Engines at ``index``, with these shares of their device."""
        return Generation(
            devices=self.devices[index],
            tensor=self.tensor[index],
            samples=float(self.samples),
            pool_share=pool_share,
            places=float(MOST_AT_ONCE),
            **self.lengths,
        )


def training_side(
    shape: Shape,
    workload: Workload,
    hardware: Hardware,
    profile: Profile,
    devices: Sequence[int],
    parameters: Parameters,
    rl: RLParameters,
    manner: Manner,
) -> Training:
    """Every training layout of the backend on each number of devices. ``workload`` has its samples in all (strong)."""
    own = Manner(packing=manner.packing, balance=manner.balance)
    space = candidates(shape, workload, hardware, replace(profile, gathers_once=False), devices, own)
    slower = parameters.ppo.slower if parameters.ppo and profile.plain_model else 1.0
    factor = float(np.log(stack_factor(hardware, profile, parameters) * slower))
    learnt = {kind: float(np.log(parameters.phases.get(phase, 1.0))) for kind, phase in PHASE_OF.items()}
    work = RLWork(
        jobs=space.work.jobs,
        generation=Generation(1, 1, float(workload.rollouts), 1, 1, 1),
        steps=space.work.steps,
        weights=parameter_count(shape).total,
        scores=1 + space.work.reference_share,
        critic=space.work.critic_share,
        effects={kind: (factor if kind in _OF_STACK else 0.0) + known for kind, known in learnt.items()},
    )
    phases = phase_memory(space.work, parameters.memory, profile)
    held = phases.pop("generate")
    standing = np.asarray(sum(column for name, column in held.items() if name not in _OF_GENERATING))
    standing = standing + parameters.memory["fragmentation"] * (standing - held["outside the allocator"])
    most = np.max([np.asarray(sum(part.values())) for part in phases.values()], axis=0)
    parts = training_parts(work, parameters.values, rl.values)
    return Training(
        space=space,
        work=work,
        devices=space.choices["devices"],
        scoring=scoring_seconds(work, parameters.values, rl.values),
        trained=np.asarray(sum(parts.values())),
        parts=parts,
        memory=most * parameters.memory_factor,
        standing=standing * parameters.memory_factor,
        host=host_memory(space.work, profile),
    )


def engine_side(
    shape: Shape, workload: Workload, hardware: Hardware, devices: Sequence[int], training: Training
) -> Engines:
    """Every tensor parallel degree of an engine on each number of devices, inside a node."""
    samples = workload.rollouts
    rows = [
        (float(count), float(tensor))
        for count in devices
        for tensor in TENSOR_DEGREES
        if not (count % tensor or tensor > hardware.node_devices or shape.heads % tensor)
        and (shape.kv_heads % tensor == 0 or tensor % shape.kv_heads == 0)
        and not (shape.ffn % tensor or shape.hidden % tensor)
        and count // tensor <= samples
    ]
    counts, tensors = (np.array([row[place] for row in rows]) for place in (0, 1))
    # Model and device are those of any layout that trains; the rest of its columns an engine does not have.
    jobs = training.work.jobs.take(np.zeros(len(rows), int)) if len(training) else training.work.jobs
    jobs = replace(jobs, devices=counts, tensor=tensors) if len(training) else jobs
    return Engines(
        jobs=jobs,
        lengths=_lengths(workload, drawn(workload, samples)),
        samples=samples,
        devices=counts,
        tensor=tensors,
        weights=2 * whole_parameters(jobs) / tensors if len(training) else counts,
    )


def _lengths(workload: Workload, uneven: Drawn | None) -> dict[str, float]:
    """Tokens of a mean sample, of the longest response, and the spread of the responses' logarithms."""
    if uneven is None:
        prompt, new = float(workload.prompt_tokens), float(workload.new_tokens)
        return {"prompt": prompt, "response": new, "longest": new, "spread": 0.0}
    return {
        "prompt": float(uneven.prompts.mean()),
        "response": float(uneven.responses.mean()),
        "longest": float(uneven.responses.max()),
        "spread": float(np.log(np.maximum(uneven.responses, 1)).std()),
    }


def generated(
    engines: Engines, index: Column, pool_share: Any, parameters: Parameters, rl: RLParameters
) -> dict[str, Column]:
    """``generation_parts`` of engines at ``index`` with these shares of their device."""
    work = RLWork(engines.jobs.take(index), engines.side(index, pool_share), 1, 0)
    return generation_parts(work, parameters.values, rl.values, parameters.memory)


def shared(training: Training, engines: Engines, t: Column, g: Column, capacity: float) -> Column:
    """Share of the device that an engine takes beside the states of a policy that waits there: its weights, and of what
    is left then the part that the suite's worker asks for."""
    used = engines.weights[g] + ENGINE_WORKSPACE
    return (used + POOL_SHARE_OF_FREE * (capacity - training.standing[t] - used)) / capacity


def longest_fits(engines: Engines, index: Column, pool_share: Any) -> Column:
    """Whether the pool holds the longest sample, without which an engine does not start."""
    jobs, gen = engines.jobs.take(index), engines.side(index, pool_share)
    position = jobs.layers * 4 * jobs.width * jobs.kv_share / np.minimum(gen.tensor, jobs.kv_heads)
    return pool_bytes(jobs, gen) >= position * (gen.prompt + gen.longest)
