"""What is predicted, as columns: training jobs, layouts that train, engines that generate, and how both stand together.

``Jobs`` have one array per property, so that predictions are arithmetic on columns. Plain training is ``Training``
alone. A whole iteration adds ``Generation``, and ``Pairs`` of the two: where they stand, and how far behind samples may
be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from suite.planner.formulas.blocks import matrix_elements, touched_share
from suite.planner.formulas.generation import USUAL_SPREAD

Column = np.ndarray
#: Constants by name; a fit has a column of each.
Values = Mapping[str, Any]

ARCHITECTURES = ("volta", "ampere", "hopper", "blackwell", "other")


@dataclass(frozen=True)
class Jobs:
    """Columns of equal length; units are SI, flags are 0 or 1. Every rate is per device and direction.

    ``precision`` is 0 for 16 bit, 1 for fp8, 2 for fp4; ``recompute`` what the backward pass does again: 0 nothing, 1
    unfused attention alone, 2 some operators, 3 everything.

    ``head_share`` is the share of positions whose logits are computed, ``trained_share`` that of the layers that train.
    ``width`` is heads x head dimension; ``attended`` the positions that a token meets in attention, the mean of squared
    lengths over the mean length; ``tables`` how many vocabulary matrices there are, where two are counted. ``trainer``
    is 1 for the loop of a whole RL trainer, ``plain_model`` for a Hugging Face model that runs eagerly.
    """

    layers: Column
    hidden: Column
    ffn: Column
    heads: Column
    kv_heads: Column
    vocab: Column
    gated: Column
    sequence: Column
    global_batch: Column
    micro_batch: Column
    devices: Column
    tensor: Column
    pipeline: Column
    chunks: Column
    context: Column
    zero_stage: Column
    sequence_parallel: Column
    recompute: Column
    precision: Column
    low_rank: Column
    packed: Column
    head_share: Column
    trained_share: Column
    architecture: Column
    peak: Column
    power_share: Column
    fp4_ratio: Column
    memory_bandwidth: Column
    link: Column
    network: Column
    node_devices: Column
    host_link: Column
    capacity: Column
    fused_attention: Column
    engine: Column
    eager: Column
    asynchronous_tensor: Column
    row_scaling: Column
    zero_engine: Column
    trainer: Column
    plain_model: Column
    offload_optimizer: Column
    width: Column
    attended: Column
    experts: Column
    experts_per_token: Column
    expert_parallel: Column
    tables: Column

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def megatron(self) -> Column:
        """Whether a job runs in Megatron's recipe; PyTorch FSDP and DeepSpeed have their own."""
        return (self.zero_engine == 0) & (self.zero_stage <= 1)

    @property
    def kv_share(self) -> Column:
        return self.kv_heads / self.heads

    @property
    def data(self) -> Column:
        """Data parallel degree, context parallelism not counted."""
        return np.maximum(1, self.devices / (self.tensor * self.pipeline * self.context))

    @property
    def tokens(self) -> Column:
        """Tokens of a micro batch on one context-parallel rank."""
        return self.micro_batch * self.sequence / self.context

    @property
    def elements(self) -> Column:
        """Elements of one block's weight matrices, all experts in."""
        return self._elements(self.experts)

    @property
    def active_elements(self) -> Column:
        """Of these, the ones that each token is multiplied with."""
        return self._elements(self.experts_per_token)

    @property
    def expert_elements(self) -> Column:
        """Elements of all experts of one block; 0 where it has one MLP for every token."""
        return np.where(self.experts > 1, self.experts * (2 + self.gated) * self.hidden * self.ffn, 0.0)

    @property
    def local_elements(self) -> Column:
        """Elements of one block that an expert-parallel rank holds, before tensor parallelism."""
        return self.elements - self.expert_elements * (1 - 1 / self.expert_parallel)

    def read_elements(self, tokens: Column) -> Column:
        """Of these, the ones that a pass of ``tokens`` tokens on each expert-parallel rank reads."""
        met = touched_share(tokens * self.expert_parallel, self.experts, self.experts_per_token)
        unread = np.where(self.experts > 1, 1 - met, 0.0)
        return self.local_elements - unread * self.expert_elements / self.expert_parallel

    def _elements(self, mlps: Column) -> Column:
        router = np.where(self.experts > 1, self.hidden * self.experts, 0.0)
        return matrix_elements(self.hidden, self.ffn, self.kv_share, self.gated, self.width, mlps) + router

    def take(self, index: Any) -> "Jobs":
        """The jobs that a mask or a list of positions picks."""
        return Jobs(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    @classmethod
    def alike(cls, common: Mapping[str, float], columns: Mapping[str, Column]) -> "Jobs":
        """Jobs that differ in ``columns`` and agree in ``common``."""
        zero = np.zeros(len(next(iter(columns.values()))))
        every: Mapping[str, Any] = {**common, **columns}
        return cls(**{field.name: zero + every[field.name] for field in fields(cls)})


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
    ``critic`` is a separate critic's work over the policy's. ``reward`` is seconds of a sample's reward.

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
    #: elements of ZeRO's reduction bucket at most; 0: DeepSpeed's own number
    bucket: Any = 0.0
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
    where it asks for a share of what is free; on devices that train it may free them when it ``sleeps``. ``tools`` are
    seconds that a sample waits for, while the engine decodes others.
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
    #: of its device at most for keys and values, where weights stand beside them; 0: a share of what is free
    cache_share: Any = 0.0
    sleeps: Any = 1.0
    places: Any = 1024.0
    eager: Any = 0.0
    tools: Any = 0.0
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
    def each(cls, count: int, **how: Any) -> "Pairs":
        """Every layout with the generation at the same place."""
        return cls(np.arange(count), np.arange(count), **how)

    def take(self, index: Any) -> "Pairs":
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
