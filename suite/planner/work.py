"""What is predicted, as columns: layouts that train, engines that generate, and which of both stand together how.

Plain training is ``Training`` alone. A whole iteration adds ``Generation``, and ``Pairs`` of the two: where they stand,
and how far behind samples may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from suite.planner.formulas.generation import USUAL_SPREAD
from suite.planner.jobs import Column, Jobs


class _Side:
    """What layouts and engines have in common."""

    jobs: Jobs
    effects: Mapping[str, Any]

    def __post_init__(self) -> None:
        _to_columns(self, len(self.jobs))

    def __len__(self) -> int:
        return len(self.jobs)

    def factor(self, phase: str) -> Any:
        """The stack's own factor on the seconds of a phase."""
        return np.exp(self.effects.get(phase, 0.0))

    def take(self, index: Any) -> Self:
        """Those at these places."""
        return _taken(self, index)


@dataclass(frozen=True)
class Training(_Side):
    """Layouts that score and train, a column for each property; a number stands for all of them.

    ``jobs`` is one optimizer step: ``devices`` of the training side, ``global_batch`` samples of a step. Its passes are
    the mean ones of the fullest replica, those of ``largest`` the largest, which memory is needed for. ``samples`` of
    an iteration, on all replicas, and its optimizer ``steps``. ``old`` and ``reference`` are forward passes over all
    samples beside training, in work over the policy's: for the policy's own log-probabilities, and of a reference.
    ``critic`` is a separate critic's work over the policy's. ``host_reward`` is seconds of a sample's reward.

    ``held`` are the parameters of one tensor parallel rank before sharding, by kind and end of the pipeline,
    ``weights`` those of the model, ``trained`` and ``replica`` those that a replica trains and holds in all,
    ``largest_tensor`` the elements of the largest matrix, ``swapped`` the parameters whose reference waits in host
    memory. ``half`` is 1 for fp16 in Megatron's recipe. ``effects`` are logarithms of factors on phases.
    """

    jobs: Jobs
    largest: Jobs
    held: Mapping[str, Column]
    samples: Any = 0.0
    steps: Any = 1
    weights: Any = 0.0
    trained: Any = 0.0
    replica: Any = 0.0
    largest_tensor: Any = 0.0
    old: Any = 0.0
    reference: Any = 0.0
    critic: Any = 0.0
    reward: Any = 0.0
    swapped: Any = 0.0
    offload_parameters: Any = 0.0
    #: ZeRO-3's weights stand whole on each device while its own loop decodes; and whether each step gathers them anew
    gathers_once: Any = 0.0
    regathers: Any = 1.0
    half: Any = 0.0
    chunked_loss: Any = 0.0
    flash_three: Any = 0.0
    activations_offloaded: Any = 0.0
    effects: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Generation(_Side):
    """Who generates, by replica: ``engine`` 1 for an engine of its own, 0 for the training stack's own loop.

    ``jobs`` are the model on these devices, ``devices`` of all replicas together, each of ``tensor`` ranks, ``samples``
    of an iteration on all of them. Lengths are tokens: of a mean prompt (the longest in the stack's own loop) and
    response, of the longest response, ``spread`` the deviation of the responses' logarithms. ``group`` samples share a
    prompt, which an engine computes once. It takes up ``places`` samples at once and ``pool_share`` of its device, NaN
    where it asks for a share of what is free; on devices that train it may free them when it ``sleeps``.
    ``weight_bytes`` are those of an element, ``cache_bytes`` those of one position and layer over all ranks, where keys
    and values are one ``latent``.
    """

    jobs: Jobs
    devices: Any
    tensor: Any
    samples: Any
    prompt: Any
    response: Any
    longest: Any
    engine: Any = 1.0
    spread: Any = USUAL_SPREAD
    group: Any = 1.0
    weight_bytes: Any = 2.0
    cache_bytes: Any = 0.0
    latent: Any = 0.0
    pool_share: Any = np.nan
    sleeps: Any = 1.0
    places: Any = 1024.0
    eager: Any = 0.0
    effects: Mapping[str, Any] = field(default_factory=dict)

    @property
    def replicas(self) -> Column:
        return np.maximum(1, self.devices / self.tensor)


@dataclass(frozen=True)
class Pairs:
    """Iterations: places of layouts ``t`` and of who generates ``g``, whether on the same devices, and how many
    publications of weights samples may be behind. ``one_by_one``: tensors are sent one at a time."""

    t: Column
    g: Column
    colocated: Any = 1.0
    staleness: Any = 0.0
    one_by_one: Any = 0.0

    def __post_init__(self) -> None:
        _to_columns(self, len(self.t))

    def __len__(self) -> int:
        return len(self.t)

    @classmethod
    def each(cls, count: int, **how: Any) -> Pairs:
        """Every layout with the generation at the same place."""
        return cls(np.arange(count), np.arange(count), **how)

    def take(self, index: Any) -> Pairs:
        """The pairs at these places, each of a layout and an engine of its own."""
        own = np.arange(len(index))
        return replace(_taken(self, index), t=own, g=own)


def _to_columns(whole: Any, count: int) -> None:
    """Numbers become columns of so many."""
    for each in fields(whole):
        value = getattr(whole, each.name)
        if not isinstance(value, (Jobs, Mapping)) and np.ndim(value) == 0:
            object.__setattr__(whole, each.name, np.full(count, float(value)))


def _taken(whole: Any, index: Any) -> Any:
    """Columns at ``index``; of effects a number stands for all."""

    def part(value: Any) -> Any:
        if isinstance(value, Jobs):
            return value.take(index)
        if isinstance(value, Mapping):
            return {name: part(column) for name, column in value.items()}
        return value[index] if isinstance(value, np.ndarray) else value

    return replace(whole, **{each.name: part(getattr(whole, each.name)) for each in fields(whole)})
