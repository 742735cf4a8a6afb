"""Runs of trainers: manifests as a driver makes them and as a rank reads them, and what holds of each that ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from msgspec import structs

from suite.backends.base import stack_of
from suite.backends.registry import find_backend
from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.launch.probe import stack_versions
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Backend, Limits, Manifest, Measure
from suite.spec.resolve import make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.worker.asked import expected_counts
from suite.worker.world import World
from tests.worker.written import events_in

CPU = Measure(device="cpu", precision="fp32", warmup=1, iterations=1)
CUDA = Measure(device="cuda", precision="bf16")
ALONE = World(0, 1, 0, 1, torch.device("cpu"))
ONE_STEP: dict[str, Any] = {"name": "tiny", "prompt_tokens": 5, "new_tokens": 6, "rollouts": 8, "micro_batch": 2}
#: two micro batches a step, two steps an epoch, two epochs: every way in which a step can be missed or doubled
WORK = {**ONE_STEP, "optimizer_steps": 2, "ppo_epochs": 2}


def tiny_shape(architecture: str = "gpt2", **changes: Any) -> Shape:
    """A model of two layers with an odd vocabulary; Llamas have grouped queries."""
    grouped = {"kv_heads": 4} if architecture in ("gpt2", "opt") else {"kv_heads": 2}
    body = {"layers": 2, "hidden": 32, "ffn": 64, "heads": 4, "vocab": 131, "positions": 16, **grouped}
    return Shape(**{"name": f"tiny-{architecture}", "architecture": architecture, **body, **changes})


def trainer_manifest(
    backend: str,
    size: Shape,
    work: Workload | dict[str, Any],
    layout: Layout | LayoutRequest,
    measure: Measure = CPU,
    python: str | None = None,
) -> Manifest:
    """As the driver makes it; with the versions of the stack that ``python`` holds."""
    driver = find_backend(backend)
    workload = work if isinstance(work, Workload) else Workload.model_validate(work)
    laid = layout if isinstance(layout, Layout) else driver.layout(size, workload, layout)
    found = stack_versions(python, (*driver.packages, *driver.optional_packages)) if python else {}
    versions = {name: version for name, version in found.items() if version}
    return make_manifest(
        plan="tests",
        repeat=1,
        backend=Backend(name=driver.name, kind=driver.kind),
        size=size,
        workload=workload,
        layout=laid,
        measure=measure,
        limits=Limits(run_seconds=500, silence_seconds=450),
        stack=stack_of(driver, laid, versions),
    )


def as_read(manifest: Manifest) -> dict[str, Any]:
    """As a rank has it."""
    return manifest.model_dump(mode="json", by_alias=True)


class Run(NamedTuple):
    """A run that ended, and its bundle."""

    record: Record
    bundle: Bundle

    @property
    def stats(self) -> list[dict[str, Any]]:
        """Of each iteration, as rank 0 tells them."""
        return [event["stats"] for event in self.events("iteration")]

    @property
    def facts(self) -> dict[str, Any]:
        """What ranks found where they ran."""
        return dict(self.record.environment.worker)

    @property
    def shims(self) -> list[str]:
        """Names of the patches that were needed."""
        return sorted(note.split()[1].rstrip(":") for note in self.facts["notes"] if note.startswith("shim "))

    def events(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        return events_in(self.bundle.path, kind, rank)


def run_of(manifest: Manifest, folder: Path, python: str, on_event: Callable[[Any], None] = lambda _: None) -> Run:
    """Run it, however it ends."""
    record = execute(manifest, folder, LocalLauncher(), python, on_event)
    return Run(record, Bundle(folder / manifest.run.id))


def whole_run_of(manifest: Manifest, folder: Path, python: str) -> Run:
    """Run it: it ends well, does the manifest's work, and derives to its record."""
    run = run_of(manifest, folder, python)
    log = (run.bundle.path / "logs" / "rank-0.log").read_text()[-3000:]
    assert run.record.status == "ok", f"{run.record.failure}\n{log}"
    assert verify(run.bundle).status == "equal"
    body = as_read(run.bundle.manifest())
    assert expected_counts(body["workload"], body["work"]).items() <= structs.asdict(run.record.counts).items()
    return run
