"""The size of a model: its shape, and the architecture that the shape belongs to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from suite.spec.base import Frozen

Architecture = Literal["gpt2", "opt", "llama"]


class Shape(Frozen):
    """A decoder-only transformer shape; parameter counts follow from it (``suite.theory.parameters``).

    ``gpt2``: learned positions, pre-LayerNorm with biases, GELU, biased projections.
    ``opt``: as ``gpt2`` with ReLU and two extra position rows. ``llama``: rotary positions,
    RMSNorm, gated SiLU MLP, no biases.
    """

    name: str = Field(min_length=1, max_length=64, description="what the size is called in commands and reports")
    architecture: Architecture = "gpt2"
    layers: int = Field(gt=0)
    hidden: int = Field(gt=0, description="model width")
    ffn: int = Field(gt=0, description="inner width of the MLP")
    heads: int = Field(gt=0, description="query heads")
    kv_heads: int = Field(gt=0, description="key and value heads; fewer than heads is grouped-query attention")
    vocab: int = Field(gt=0, description="vocabulary before any padding")
    positions: int = Field(gt=0, description="longest sequence, prompt and response together")
    tied_embeddings: bool = True
    note: str | None = Field(default=None, description="what a reader must know about this shape")
    source: str | None = Field(default=None, description="where the shape was read")

    @model_validator(mode="after")
    def _divides(self) -> "Shape":
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not divisible by {self.heads} heads")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads are not divisible by {self.kv_heads} key-value heads")
        return self

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def gated_mlp(self) -> bool:
        return self.architecture == "llama"

    def padded_vocab(self, multiple: int) -> int:
        """Vocabulary rounded up to a multiple, as NeMo pads it to 128 x tensor parallel."""
        return -(-self.vocab // multiple) * multiple
