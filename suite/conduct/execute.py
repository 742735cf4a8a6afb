"""One run: bundle, job, launcher, events, record."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import suite
from suite.backends.registry import find_backend
from suite.bundle.derive import derive
from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.conduct.provenance import driver_facts
from suite.launch.job import Job, JobLimits
from suite.launch.outcome import Launcher, RunFolder
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest


def make_job(manifest: Manifest, bundle: Path, python: str) -> Job:
    """The job of a manifest: the same argv, environment and limits whatever launches it."""
    driver = find_backend(manifest.backend.name)
    measure = manifest.measure
    env = {
        "OMP_NUM_THREADS": str(measure.threads_per_rank),
        "PYTHONPATH": worker_path(python),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if measure.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    env.update(driver.variables(measure))
    return Job(
        name=manifest.run.id,
        argv=(python, *driver.worker_argv(str(bundle / "manifest.json"), str(bundle))),
        env=env,
        nodes=manifest.layout.nodes,
        ranks_per_node=manifest.layout.devices_per_node,
        limits=JobLimits(run_seconds=manifest.limits.run_seconds, silence_seconds=manifest.limits.silence_seconds),
    )


def worker_path(python: str) -> str:
    """Folder that makes ``suite.worker`` importable for the stack's interpreter, and nothing else of the driver's.

    Raises UsageError where the driver's own site-packages would leak into another interpreter.
    """
    import sys

    root = Path(next(iter(suite.__path__))).resolve().parent
    if root.name in ("site-packages", "dist-packages") and Path(python).resolve() != Path(sys.executable).resolve():
        raise UsageError(
            f"{python} would see the driver's packages: run suite from a checkout to use another interpreter"
        )
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(root), inherited] if inherited else [str(root)])


def execute(
    manifest: Manifest, root: Path, launcher: Launcher, python: str, on_event: Callable[[dict], None]
) -> Record:
    """Run one manifest to its end and derive its record. A failed run is a record too.

    Raises UsageError when the bundle cannot be made. An interrupt ends the run, whose record says ``interrupted``.
    """
    bundle = Bundle.create(root, manifest)
    with bundle.hold():
        with bundle.driver_events() as log:
            job = make_job(manifest, bundle.path.resolve(), python)
            bundle.write_environment(driver_facts(launcher.name, job, bundle.path.resolve()))
            log.write("launch", schema="suite/events/1", launcher=launcher.name, ranks=job.ranks, pid=os.getpid())
            folder = RunFolder(events_dir=bundle.path / "events", logs_dir=bundle.path / "logs")
            outcome = launcher.run(job, folder, on_event)
            if outcome.failure is not None:
                failure = outcome.failure
                log.write(
                    "failure",
                    failure=failure.kind,
                    phase=failure.phase,
                    iteration=failure.iteration,
                    evidence=list(failure.evidence),
                )
            log.write(
                "end",
                status=outcome.status,
                exit_codes={str(rank): code for rank, code in outcome.exit_codes.items()},
                elapsed_seconds=outcome.elapsed_seconds,
            )
        record = derive(bundle)
        bundle.write_record(record)
    return record
