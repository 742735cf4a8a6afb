"""The driver's side of a trainer on Ray. The launcher starts a rank for each device; rank 0 leads the trainer."""

from __future__ import annotations

from suite.backends.base import BackendKind
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite_example_backend.driver import Example


class ExampleRay(Example):
    """A trainer that counts and learns nothing, on one actor for each device."""

    name = "example-ray"
    kind: BackendKind = "trainer"
    summary = "a toy from another package: a trainer on Ray that learns nothing"
    packages: tuple[str, ...] = ("torch", "ray", "suite-example-backend")
    environment = "verl"

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        if workload.uneven:
            return ["the toy forces one length on all samples"]
        return super().errors(size, workload, layout, measure)

    def worker_argv(self, manifest_path: str, bundle_path: str) -> tuple[str, ...]:
        return ("-m", "suite_example_backend.ray_worker", manifest_path, "--bundle", bundle_path)
