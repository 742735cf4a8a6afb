"""Accelerators: what a data sheet says of them. A device that is not in the catalogue has no peak."""

from typing import Literal

from pydantic import Field

from suite.spec.base import Frozen

Precision = Literal["fp32", "bf16", "fp16"]


class Device(Frozen):
    """One accelerator of the catalogue; every rate is dense (no sparsity) and per device."""

    name: str
    aliases: tuple[str, ...] = Field(default=(), description="other names, the driver's own among them")
    vendor: Literal["nvidia", "amd"]
    memory_bytes: int = Field(gt=0)
    memory_bytes_per_second: float = Field(gt=0, description="peak device memory bandwidth")
    link_bytes_per_second: float | None = Field(default=None, description="in a node, both directions; null: PCIe only")
    link_devices: int | None = Field(default=None, gt=1, description="that a bridge joins; null: all of a node")
    peak_flops: dict[str, float] = Field(description="dense FLOP/s by precision: fp32, tf32, fp16, bf16, fp8")
    power_watts: float | None = None
    source: str = Field(description="data sheet the figures were read from")
    note: str | None = None
