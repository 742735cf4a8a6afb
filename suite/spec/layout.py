"""How ranks share the work: nodes, parallel degrees, sharding, recompute, offload."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from suite.spec.base import Frozen

Recompute = Literal["none", "full"]


class Layout(Frozen):
    """Degrees multiply to the world: tensor x pipeline x data = nodes x devices_per_node."""

    nodes: int = Field(default=1, gt=0)
    devices_per_node: int = Field(gt=0)
    tensor: int = Field(default=1, gt=0, description="tensor parallel degree")
    pipeline: int = Field(default=1, gt=0, description="pipeline parallel degree")
    data: int = Field(gt=0, description="data parallel degree: the number of model replicas")
    sequence_parallel: bool = Field(default=False, description="Megatron sequence parallelism inside tensor parallel")
    zero_stage: int = Field(default=0, ge=0, le=3, description="DeepSpeed ZeRO stage")
    distributed_optimizer: bool = Field(
        default=False, description="Megatron optimizer states sharded over data parallel"
    )
    recompute: Recompute = "none"
    offload_optimizer: bool = Field(default=False, description="optimizer states in host memory")
    offload_parameters: bool = Field(default=False, description="parameters in host memory (ZeRO-3 only)")

    @model_validator(mode="after")
    def _multiplies(self) -> "Layout":
        product = self.tensor * self.pipeline * self.data
        if product != self.ranks:
            raise ValueError(
                f"tensor {self.tensor} x pipeline {self.pipeline} x data {self.data} = {product}, "
                f"but there are {self.ranks} ranks ({self.nodes} nodes x {self.devices_per_node} devices)"
            )
        if self.sequence_parallel and self.tensor == 1:
            raise ValueError("sequence parallelism needs tensor parallel of at least 2")
        if self.offload_parameters and self.zero_stage != 3:
            raise ValueError("parameters can be offloaded under ZeRO stage 3 only")
        if self.offload_optimizer and self.zero_stage == 0 and not self.distributed_optimizer:
            raise ValueError("the optimizer can be offloaded under ZeRO stages 1 to 3 only")
        return self

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices_per_node

    def label(self) -> str:
        """Short name in tables, e.g. ``zero2``, ``tp2 sp dist-opt``; what is off or 1 is left out."""
        parts = []
        if self.zero_stage:
            parts.append(f"zero{self.zero_stage}")
        if self.tensor > 1:
            parts.append(f"tp{self.tensor}")
        if self.pipeline > 1:
            parts.append(f"pp{self.pipeline}")
        if self.data > 1:
            parts.append(f"dp{self.data}")
        if self.sequence_parallel:
            parts.append("sp")
        if self.distributed_optimizer:
            parts.append("dist-opt")
        if self.recompute == "full":
            parts.append("recompute")
        if self.offload_optimizer:
            parts.append("offload-opt")
        if self.offload_parameters:
            parts.append("offload-param")
        return " ".join(parts) or "plain"

    def strategy(self) -> str:
        """The label without the data parallel degree: what must be equal between points of a scaling curve."""
        return " ".join(part for part in self.label().split() if not part.startswith("dp")) or "plain"
