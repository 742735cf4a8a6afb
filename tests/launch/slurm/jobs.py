"""Jobs and manifests of Slurm's tests."""

from pathlib import Path
from typing import Any, NamedTuple

from suite.conduct.running.execute import make_job
from suite.launch.cluster.launcher import EVENTS_ON_OUTPUT
from suite.launch.job import Job, Mount, Site
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from tests.synthetic import synthetic_manifest

ROOT = Path("/scratch/team/runs")


class SlurmRun(NamedTuple):
    """What a script reads of a submission."""

    manifest: Manifest
    job: Job


def manifest(nodes: int = 4, gpus: int = 8, repeat: int = 1, device: str = "cuda") -> Manifest:
    """Data parallel over all ranks."""
    layout = Layout(nodes=nodes, devices_per_node=gpus, data=nodes * gpus)
    precision = "bf16" if device == "cuda" else "fp32"
    return synthetic_manifest(layout=layout, device=device, precision=precision, repeat=repeat)


def site(of: Manifest, image: str | None = None, mounts: tuple[Mount, ...] = (), **changes: Any) -> Site:
    """As the command makes it."""
    python, path = ("/opt/stack/bin/python", "/opt/suite/src") if image else ("/sw/venv/bin/python", "/sw/suite")
    body = {
        "python": python,
        "bundle": ".",
        "python_path": path,
        "env": EVENTS_ON_OUTPUT,
        "image": image,
        "device_count": of.layout.devices_per_node if of.measure.device == "cuda" else None,
        "mounts": mounts,
    }
    return Site.model_validate({**body, **changes})


def job(of: Manifest, image: str | None = None, mounts: tuple[Mount, ...] = ()) -> Job:
    return make_job(of, site(of, image, mounts))


def run(**shape: int) -> SlurmRun:
    made = manifest(**shape)
    return SlurmRun(made, job(made))
