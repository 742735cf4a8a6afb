"""How ranks share the work: nodes, parallel degrees, sharding, recompute, offload; and what is asked of it."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, create_model, model_validator

from suite.spec.base import Frozen
from suite.spec.fields import Declared, Declaring, Later, declared, is_default

Generation = Literal["hf", "vllm"]


class Layout(Declaring):
    """Degrees multiply to the world: tensor x pipeline x data = nodes x devices_per_node, less what only generates."""

    nodes: PositiveInt = 1
    devices_per_node: PositiveInt
    tensor: Annotated[PositiveInt, Declared("--tp", "Megatron tensor parallel degree", "compare", "tp{}")] = 1
    pipeline: Annotated[PositiveInt, Declared("--pp", "Megatron pipeline parallel degree", "compare", "pp{}")] = 1
    data: Annotated[PositiveInt, Declared(help="data parallel degree: the number of model replicas", label="dp{}")]
    sequence_parallel: Annotated[
        bool,
        Declared(
            "--sequence-parallel", "Megatron sequence parallelism [default: where tensor parallel]", "automatic", "sp"
        ),
    ] = False
    zero_stage: Annotated[
        int, Declared("--zero", "DeepSpeed ZeRO stage 0-3; FSDP2 shards what 3 does", "compare", "zero{}")
    ] = Field(default=0, ge=0, le=3)
    distributed_optimizer: Annotated[
        bool,
        Declared("--distributed-optimizer", "shard Megatron's optimizer states [default: on]", "automatic", "dist-opt"),
    ] = False
    recompute: Annotated[
        Literal["none", "full"],
        Declared("--recompute", "recompute activations in the backward pass", "switch", "recompute"),
    ] = "none"
    offload_optimizer: Annotated[
        bool, Declared("--offload-optimizer", "keep optimizer states in host memory", "switch", "offload-opt")
    ] = False
    offload_parameters: Annotated[
        bool, Declared("--offload-parameters", "keep parameters in host memory (ZeRO-3)", "switch", "offload-param")
    ] = False
    gather_for_generation: Annotated[
        bool,
        Later(
            "--gather-for-generation",
            "ZeRO-3: whole weights to generate on [default: if they fit]",
            "automatic",
            "gather-gen",
        ),
    ] = False
    kernels: Annotated[
        Literal["torch", "native"],
        Later("--kernels", "whose run: torch's, or native, the stack's own compiled ones", "compare", "{} kernels"),
    ] = "torch"
    expert: Annotated[PositiveInt, Later("--ep", "Megatron expert parallel degree", "compare", "ep{}")] = 1
    packing: Annotated[
        bool, Later("--packing", "score and train uneven samples end to end, without padding", "switch", "packed")
    ] = False
    balance: Annotated[
        bool, Later("--balance", "deal uneven samples to ranks by length to score and train", "switch", "balanced")
    ] = False
    generation: Annotated[
        Generation,
        Later("--generation", "hf, the training stack's own loop, or vllm, an engine of its own", "compare", "{}"),
    ] = "hf"
    engine_sleep: Annotated[
        bool, Later("--engine-sleep", "the generation engine frees its memory outside generation", "automatic", "sleep")
    ] = False
    engine_memory: Annotated[
        int, Later("--engine-memory", "percent of a GPU for vLLM; 0: the stack's own", "compare", "mem{}%")
    ] = Field(default=0, ge=0, le=95)
    placement: Annotated[
        Literal["colocated", "split"],
        Later("--placement", "colocated, or split: some ranks generate while the others train", "compare", "{}"),
    ] = "colocated"
    generation_ranks: Annotated[
        NonNegativeInt,
        Later("--generation-ranks", "ranks that generate and do not train, under --placement split", "compare", "g{}"),
    ] = 0
    engine: Annotated[
        Literal["deepspeed", "ddp", "fsdp2"],
        Later("--engine", "what a trainer with a choice trains on: deepspeed, ddp or fsdp2", "compare", "{}"),
    ] = "deepspeed"
    staleness: Annotated[
        NonNegativeInt,
        Later("--staleness", "how many updates an asynchronous trainer's samples may be behind", "compare", "async{}"),
    ] = 0
    bucket_elements: Annotated[
        NonNegativeInt,
        Later("--bucket-elements", "gradients reduced at once; 0: the stack's own", "compare", "bucket{}"),
    ] = 0
    sampler: Annotated[
        Literal["own", "fast"],
        Later("--sampler", "verl's own, which looks every 2 s, or fast: every 0.02 s", "compare", "{} sampler"),
    ] = "own"

    @model_validator(mode="after")
    def _fits_together(self) -> "Layout":
        if (self.placement == "split") != (self.generation_ranks > 0):
            raise ValueError("--placement split and --generation-ranks belong together")
        if self.engine_sleep and self.generation == "hf":
            raise ValueError("only an engine of its own sleeps while the policy trains: --generation vllm")
        if self.engine_sleep and self.placement == "split":
            raise ValueError("an engine on ranks of its own never sleeps")
        if self.staleness and self.placement != "split":
            raise ValueError("samples grow stale on ranks of their own alone: --staleness needs --placement split")
        if self.data % self.expert:
            raise ValueError(
                f"experts are spread over data parallel ranks: {self.data} is not divisible by {self.expert}"
            )
        if self.engine == "ddp" and self.zero_stage:
            raise ValueError(f"DDP shards nothing: ZeRO stage {self.zero_stage} is DeepSpeed's")
        if self.engine == "fsdp2" and (self.zero_stage != 3 or self.gather_for_generation):
            raise ValueError("FSDP2 shards everything, as ZeRO stage 3 does, and gathers nothing once for generation")
        product = self.tensor * self.pipeline * self.data
        if product != self.training_ranks:
            apart = f", {self.generation_ranks} of which generate" if self.generation_ranks else ""
            raise ValueError(
                f"tensor {self.tensor} x pipeline {self.pipeline} x data {self.data} = {product}, "
                f"but there are {self.ranks} ranks ({self.nodes} nodes x {self.devices_per_node} devices){apart}"
            )
        if self.sequence_parallel and self.tensor == 1:
            raise ValueError("sequence parallelism needs tensor parallel of at least 2")
        if self.offload_parameters and self.zero_stage != 3:
            raise ValueError("parameters can be offloaded under ZeRO stage 3 only")
        if self.gather_for_generation and self.zero_stage != 3:
            raise ValueError("weights are gathered for generation under ZeRO stage 3 only: the others hold them whole")
        if self.offload_optimizer and self.zero_stage == 0 and not self.distributed_optimizer:
            raise ValueError("the optimizer can be offloaded under ZeRO stages 1 to 3 only")
        return self

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices_per_node

    @property
    def training_ranks(self) -> int:
        """Ranks that train: all of them, unless some generate alone."""
        return self.ranks - self.generation_ranks

    @property
    def asynchronous(self) -> bool:
        """Whether a trainer trains on samples of older weights while others are generated."""
        return self.staleness > 0

    def strategy(self) -> str:
        """The label without the data parallel degree: what must be equal between points of a scaling curve."""
        return self.label(with_data=False)

    def label(self, with_data: bool = True) -> str:
        """Short name in tables, e.g. ``zero2``, ``tp2 sp dist-opt``; what is off or 1 is left out."""
        is_off = {
            "data": self.data == 1 or not with_data,
            "zero_stage": self.engine != "deepspeed" or not self.zero_stage,
        }
        shown = (
            label.format(getattr(self, name))
            for name, label in _labelled()
            if not is_off.get(name, is_default(self, name))
        )
        return " ".join(shown) or "plain"


@cache
def _labelled() -> tuple[tuple[str, str], ...]:
    """Fields with their labels, in the order in which tables show them: what trains comes first."""
    facts = sorted(declared(Layout), key=lambda each: each[0] not in ("zero_stage", "engine"))
    return tuple((name, fact.label) for name, fact in facts if fact.label)


def _asked(name: str, fact: Declared, one_value: bool) -> tuple[Any, Any]:
    """Type and default of a field of ``LayoutChoices``, or of ``LayoutRequest``, which has ``one_value``."""
    info = Layout.model_fields[name]
    bounds = tuple(each for each in info.metadata if each is not fact)
    kind: Any = Annotated[(info.annotation, *bounds)] if bounds else info.annotation
    if fact.choice == "switch":
        return Annotated[kind, fact], info.default
    is_crossed = fact.choice == "compare" and not one_value
    return (Annotated[tuple[kind, ...], fact], ()) if is_crossed else (Annotated[kind | None, fact], None)


class _LayoutRequest(Frozen):
    nodes: int = 1
    devices_per_node: int
    device_memory_bytes: int | None = None

    if TYPE_CHECKING:

        def __init__(self, *, devices_per_node: int, **fields: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices_per_node

    @property
    def training_ranks(self) -> int:
        """Ranks that are left to train: all, unless split ones were asked for."""
        return self.ranks - (0 if self.placement == "colocated" else self.generation_ranks or 0)


if TYPE_CHECKING:

    class LayoutChoices(Declaring):
        """Layout values to cross; an empty tuple or ``None`` leaves the choice to each backend."""

        def __getattr__(self, name: str) -> Any: ...

    class LayoutRequest(_LayoutRequest):
        """What a user asked of one layout; ``None`` leaves the choice to the backend."""

else:
    _crossed, _single = (
        {name: _asked(name, fact, one_value) for name, fact in declared(Layout) if fact.choice}
        for one_value in (False, True)
    )
    LayoutChoices = create_model("LayoutChoices", __base__=Declaring, **_crossed)
    LayoutRequest = create_model("LayoutRequest", __base__=_LayoutRequest, **_single)
