"""The size of a model: its shape, and the architecture that the shape belongs to."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from suite.spec.base import Frozen
from suite.spec.fields import Declaring, Later

Architecture = Literal["gpt2", "opt", "llama", "qwen2", "qwen3", "mixtral", "qwen3_moe"]
#: Families with rotary positions, RMSNorm and a gated SiLU MLP without biases.
LLAMA_LIKE: frozenset[str] = frozenset({"llama", "qwen2", "qwen3", "mixtral", "qwen3_moe"})
#: Of these, families that normalise each head's query and key.
QK_NORM: frozenset[str] = frozenset({"qwen3", "qwen3_moe"})


class RopeScaling(Frozen):
    """How rotary frequencies are stretched beyond the positions that a model was first trained on. ``linear`` divides
    positions by ``factor``. ``llama3`` (Llama 3.1, arXiv 2407.21783) divides low frequencies by ``factor``, leaves high
    ones, and blends between; the other fields are its own."""

    kind: Literal["linear", "llama3"]
    factor: PositiveFloat
    low_frequency_factor: PositiveFloat | None = None
    high_frequency_factor: PositiveFloat | None = None
    original_positions: PositiveInt | None = None


class Experts(Frozen):
    """A mixture of experts in every block: a router chooses ``per_token`` of ``count`` gated MLPs for each token. The
    shape's ``ffn`` is then the inner width of one expert."""

    count: int = Field(gt=1)
    per_token: int = Field(gt=0)
    normalise: bool = Field(default=True, description="the chosen experts' weights add up to 1")


class Shape(Declaring):
    """A decoder-only transformer shape; parameter counts follow from it (``suite.theory.parameters``).

    ``gpt2``: learned positions, pre-LayerNorm with biases, GELU, biased projections.
    ``opt``: as ``gpt2`` with ReLU and two extra position rows. ``llama``: rotary positions, RMSNorm, gated SiLU MLP,
    no biases. ``qwen2``: as ``llama`` with biases on queries, keys and values. ``qwen3``: as ``llama`` with an RMSNorm
    on each head's query and key. ``mixtral`` and ``qwen3_moe``: as ``llama`` and ``qwen3`` with a mixture of experts.
    """

    name: str = Field(min_length=1, max_length=64, description="what the size is called in commands and reports")
    architecture: Architecture = "gpt2"
    layers: int = Field(gt=0)
    hidden: int = Field(gt=0, description="model width")
    ffn: int = Field(gt=0, description="inner width of the MLP; of one expert, where there are experts")
    heads: int = Field(gt=0, description="query heads")
    kv_heads: int = Field(gt=0, description="key and value heads; fewer than heads is grouped-query attention")
    vocab: int = Field(gt=0, description="vocabulary before any padding")
    positions: int = Field(gt=0, description="longest sequence, prompt and response together")
    tied_embeddings: bool = True
    head_width: Annotated[PositiveInt | None, Later(help="width of one head; null: hidden / heads")] = None
    norm_epsilon: Annotated[float | None, Later()] = Field(
        default=None, gt=0, lt=1, description="of LayerNorm or RMSNorm; null: 1e-5, or 1e-6 where positions rotate"
    )
    rope_theta: Annotated[PositiveFloat | None, Later(help="base of the rotary frequencies; null: 10000")] = None
    rope_scaling: Annotated[RopeScaling | None, Later()] = None
    experts: Annotated[Experts | None, Later()] = None
    note: str | None = Field(default=None, description="what a reader must know about this shape")
    source: str | None = Field(default=None, description="where the shape was read")

    @model_validator(mode="after")
    def _fits_together(self) -> "Shape":
        if self.head_width is None and self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not divisible by {self.heads} heads")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads are not divisible by {self.kv_heads} key-value heads")
        if self.rotary and self.head_dim % 2:
            raise ValueError(f"rotary positions need heads of even width, not {self.head_dim}")
        for field in ("rope_theta", "rope_scaling", "head_width"):
            if getattr(self, field) is not None and not self.rotary:
                raise ValueError(f"{field} belongs to families with rotary positions, not to {self.architecture}")
        if (self.experts is not None) != (self.architecture in ("mixtral", "qwen3_moe")):
            raise ValueError("experts belong to mixtral and qwen3_moe shapes, which need them")
        if self.experts is not None and self.experts.per_token > self.experts.count:
            raise ValueError(f"{self.experts.per_token} experts per token, but there are {self.experts.count}")
        scaling = self.rope_scaling
        if scaling is not None and scaling.kind == "llama3" and None in dict(scaling).values():
            raise ValueError("llama3 scaling needs low_frequency_factor, high_frequency_factor and original_positions")
        return self

    @property
    def rotary(self) -> bool:
        """Whether positions rotate queries and keys, so that there is no table of them, and the MLP is gated."""
        return self.architecture in LLAMA_LIKE

    @property
    def head_dim(self) -> int:
        return self.head_width or self.hidden // self.heads

    @property
    def query_width(self) -> int:
        """Of all heads together: what the attention's output matrix takes in."""
        return self.heads * self.head_dim

    @property
    def key_value_width(self) -> int:
        """Of all keys, or all values, of a position."""
        return self.kv_heads * self.head_dim
