"""How ranks share the work: nodes, parallel degrees, sharding, recompute, offload; and what is asked of it."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from suite.spec.base import Frozen
from suite.spec.fields import Declared, Declaring, Later, chosen, declared, is_default

#: of the data parallel degree, which a scaling curve leaves out
DATA_LABEL = "dp{}"
Recompute = Literal["none", "full"]
Kernels = Literal["torch", "native"]
Generation = Literal["hf", "vllm"]
Placement = Literal["colocated", "split"]
Engine = Literal["deepspeed", "ddp", "fsdp2"]
Sampler = Literal["own", "fast"]


class Layout(Declaring):
    """Degrees multiply to the world: tensor x pipeline x data = nodes x devices_per_node, less what only generates."""

    nodes: int = Field(default=1, gt=0)
    devices_per_node: int = Field(gt=0)
    tensor: Annotated[
        int, Declared("--tp", "Megatron tensor parallel degree; repeat to compare", "compare", label="tp{}")
    ] = Field(default=1, gt=0, description="tensor parallel degree")
    pipeline: Annotated[
        int, Declared("--pp", "Megatron pipeline parallel degree; repeat to compare", "compare", label="pp{}")
    ] = Field(default=1, gt=0, description="pipeline parallel degree")
    data: Annotated[int, Declared(label=DATA_LABEL)] = Field(
        gt=0, description="data parallel degree: the number of model replicas"
    )
    sequence_parallel: Annotated[
        bool,
        Declared(
            "--sequence-parallel",
            "Megatron sequence parallelism [default: on where tensor parallel]",
            "automatic",
            label="sp",
        ),
    ] = Field(default=False, description="Megatron sequence parallelism inside tensor parallel")
    zero_stage: Annotated[
        int,
        Declared("--zero", "DeepSpeed ZeRO stage 0-3; repeat to compare", "compare", label="zero{}", label_order=-1),
    ] = Field(default=0, ge=0, le=3, description="DeepSpeed ZeRO stage; FSDP2 shards what stage 3 does and says 3")
    distributed_optimizer: Annotated[
        bool,
        Declared(
            "--distributed-optimizer",
            "shard Megatron's optimizer states over data parallel ranks [default: on]",
            "automatic",
            label="dist-opt",
        ),
    ] = Field(default=False, description="Megatron optimizer states sharded over data parallel")
    recompute: Annotated[
        Recompute, Declared("--recompute", "recompute activations in the backward pass", "switch", label="recompute")
    ] = "none"
    offload_optimizer: Annotated[
        bool, Declared("--offload-optimizer", "keep optimizer states in host memory", "switch", label="offload-opt")
    ] = Field(default=False, description="optimizer states in host memory")
    offload_parameters: Annotated[
        bool,
        Declared("--offload-parameters", "keep parameters in host memory (ZeRO-3)", "switch", label="offload-param"),
    ] = Field(default=False, description="parameters in host memory (ZeRO-3 only)")
    gather_for_generation: Annotated[
        bool,
        Later(
            "--gather-for-generation",
            "gather ZeRO-3's weights once for a whole generation [default: where they fit]",
            "automatic",
            label="gather-gen",
        ),
    ] = Field(default=False, description="ZeRO-3's weights whole on every device while it generates")
    kernels: Annotated[
        Kernels,
        Later(
            "--kernels",
            "torch's kernels, or native: the stack's own compiled ones; repeat to compare",
            "compare",
            label="{} kernels",
        ),
    ] = Field(default="torch", description="whose kernels the engine runs")

    expert: Annotated[
        int, Later("--ep", "Megatron expert parallel degree; repeat to compare", "compare", label="ep{}")
    ] = Field(default=1, gt=0, description="expert parallel degree: over how many ranks the experts are spread")
    packing: Annotated[
        bool, Later("--packing", "score and train uneven samples end to end, without padding", "switch", label="packed")
    ] = Field(default=False, description="samples of a micro batch in one row, each attending to itself alone")
    balance: Annotated[
        bool,
        Later(
            "--balance",
            "deal uneven samples to ranks by length before scoring and training",
            "switch",
            label="balanced",
        ),
    ] = Field(default=False, description="replicas score and train nearly equal numbers of tokens")
    generation: Annotated[
        Generation,
        Later(
            "--generation",
            "hf, the training stack's own loop, or vllm, a colocated engine; repeat to compare",
            "compare",
            label="{}",
        ),
    ] = Field(default="hf", description="hf: generate on the training weights; vllm: in an engine that is given them")
    engine_sleep: Annotated[
        bool,
        Later(
            "--engine-sleep",
            "the generation engine frees its memory while the policy trains",
            "automatic",
            label="sleep",
        ),
    ] = Field(default=False, description="the generation engine holds no weights and no cache outside generation")
    engine_memory: Annotated[int, Later("--engine-memory", "percent of a GPU for vLLM", "compare", label="mem{}%")] = (
        Field(default=0, ge=0, le=95, description="for its cache, in trainers for all of vLLM; 0: the stack's own")
    )
    placement: Annotated[
        Placement,
        Later(
            "--placement",
            "colocated, or split: some ranks generate the next batch while the others train; repeat to compare",
            "compare",
            label="{}",
        ),
    ] = "colocated"
    generation_ranks: Annotated[
        int, Later("--generation-ranks", "ranks that generate under --placement split", "compare", label="g{}")
    ] = Field(default=0, ge=0, description="ranks that generate and do not train; 0 where all do both")
    engine: Annotated[
        Engine,
        Later(
            "--engine",
            "what a trainer with several engines trains on: deepspeed, ddp or fsdp2; repeat to compare",
            "compare",
            label="{}",
            label_order=-1,
        ),
    ] = Field(default="deepspeed", description="of a trainer that has a choice; means nothing to other backends")
    staleness: Annotated[
        int,
        Later(
            "--staleness",
            "publications of weights that an asynchronous trainer's samples may be behind; 0 is synchronous",
            "compare",
            label="async{}",
        ),
    ] = Field(default=0, ge=0, description="how many publications of weights old a consumed sample may be")
    bucket_elements: Annotated[
        int, Later("--bucket-elements", "gradients reduced at once", "compare", label="bucket{}")
    ] = Field(default=0, ge=0, description="of a bucket, ZeRO's or on GPUs Megatron's; 0: the stack's own")
    sampler: Annotated[
        Sampler,
        Later(
            "--sampler",
            "verl's own look for finished samples every 2 s, or a fast one every 0.02 s; repeat to compare",
            "compare",
            label="{} sampler",
        ),
    ] = Field(default="own", description="how verl's trainer waits for samples; means nothing to other backends")

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
        return self.label(leave_out=DATA_LABEL)

    def label(self, leave_out: str | None = None) -> str:
        """Short name in tables, e.g. ``zero2``, ``tp2 sp dist-opt``; what is off or 1 is left out."""
        is_off = {"data": self.data == 1, "zero_stage": self.engine != "deepspeed" or self.zero_stage == 0}
        shown = [
            label.format(getattr(self, name))
            for name, label in _labelled()
            if label != leave_out and not is_off.get(name, is_default(self, name))
        ]
        return " ".join(shown) or "plain"


@cache
def _labelled() -> tuple[tuple[str, str], ...]:
    """Fields with their labels, in the order in which tables show them."""
    facts = sorted(declared(Layout), key=lambda each: each[1].label_order)
    return tuple((name, fact.label) for name, fact in facts if fact.label)


def _asked(name: str, one_value: bool) -> tuple[Any, Any]:
    """Type and default of a field of ``LayoutChoices``, or of ``LayoutRequest``, which has ``one_value``."""
    info, fact = Layout.model_fields[name], dict(declared(Layout))[name]
    bounds = tuple(each for each in info.metadata if each is not fact)
    kind: Any = Annotated[(info.annotation, *bounds)] if bounds else info.annotation
    if fact.choice == "switch":
        return Annotated[kind, fact], info.default
    if fact.choice == "compare" and not one_value:
        return Annotated[tuple[kind, ...], fact], ()
    return Annotated[kind | None, fact], None


_CHOSEN = tuple(name for name, fact in declared(Layout) if fact.choice)


class _LayoutRequest(Frozen):
    nodes: int = 1
    devices_per_node: int
    device_memory_bytes: int | None = None

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices_per_node

    def switches(self, settings: tuple[str, ...]) -> dict[str, Any]:
        """The values of the switches that a backend knows: what its layout takes over as it is asked."""
        return {name: getattr(self, name) for name in chosen(Layout, "switch") if name in settings}


if TYPE_CHECKING:

    class LayoutChoices(Declaring):
        """Layout values to cross; an empty tuple or ``None`` leaves the choice to each backend."""

        def __getattr__(self, name: str) -> Any: ...

    class LayoutRequest(_LayoutRequest):
        """What a user asked of one layout; ``None`` leaves the choice to the backend."""

        def __init__(self, *, devices_per_node: int, **fields: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

else:
    _crossed, _single = ({name: _asked(name, one_value) for name in _CHOSEN} for one_value in (False, True))
    LayoutChoices = create_model("LayoutChoices", __base__=Declaring, **_crossed)
    LayoutRequest = create_model("LayoutRequest", __base__=_LayoutRequest, **_single)
