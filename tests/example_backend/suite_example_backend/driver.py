"""The driver's side: what the stack needs, which layouts it takes, how a rank starts. No training stack is imported."""

from __future__ import annotations

from suite.backends.base import BackendDriver, BackendKind, LayoutRequest
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload


class Example(BackendDriver):
    """A bigram model on plain PyTorch; every rank is a replica of its own."""

    name = "example-torch"
    kind: BackendKind = "engine"
    summary = "a toy from another package: a bigram model on plain PyTorch"
    packages: tuple[str, ...] = ("torch", "suite-example-backend")

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        return Layout(nodes=request.nodes, devices_per_node=request.devices_per_node, data=request.ranks)

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        if measure.precision != "fp32":
            return [f"the toy computes in fp32, not in {measure.precision}"]
        return []

    def worker_argv(self, manifest_path: str, bundle_path: str) -> tuple[str, ...]:
        return ("-m", "suite_example_backend.worker", manifest_path, "--bundle", bundle_path)
