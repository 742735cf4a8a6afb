"""One run: bundle, job, launcher, events, record."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from suite.backends.registry import find_backend
from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.conduct.planning.prediction import with_prediction
from suite.conduct.running.provenance import driver_facts
from suite.launch.job import Job, JobLimits, Site
from suite.launch.outcome import Launcher, RunFolder
from suite.spec.manifest import Manifest


def make_job(manifest: Manifest, site: Site) -> Job:
    """The job of a manifest: the same command, environment and limits whatever launches it, with the site's paths."""
    driver = find_backend(manifest.backend.name)
    measure = manifest.measure
    env = {
        "OMP_NUM_THREADS": str(measure.threads_per_rank),
        "PYTHONPATH": site.python_path,
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if measure.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    env.update(driver.variables(measure))
    env.update(site.env)
    return Job(
        name=manifest.run.id,
        argv=(site.python, *driver.worker_argv(f"{site.bundle}/manifest.json", site.bundle)),
        env=env,
        stack=site.stack,
        image=site.image,
        nodes=manifest.layout.nodes,
        ranks_per_node=manifest.layout.devices_per_node,
        devices=site.devices,
        device_count=site.device_count,
        mounts=site.mounts,
        limits=JobLimits(
            run_seconds=manifest.limits.run_seconds,
            silence_seconds=manifest.limits.silence_seconds,
            memory_bytes=site.memory_bytes,
        ),
        labels=site.labels,
    )


def execute(
    manifest: Manifest, root: Path, launcher: Launcher, python: str, on_event: Callable[[dict], None]
) -> Record:
    """Run one manifest to its end and derive its record. A failed run is a record too.

    Raises UsageError when the bundle cannot be made. An interrupt ends the run, whose record says ``interrupted``.
    """
    bundle = Bundle.create(root, manifest)
    with bundle.hold():
        with bundle.driver_events() as log:
            site = launcher.site(manifest, bundle.path.resolve(), python)
            job = make_job(manifest, site)
            bundle.write_environment(driver_facts(launcher, job, site.bundle))
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
        from suite.bundle.derive import derive  # when there is something to derive: a run need not wait for it to start

        record = with_prediction(derive(bundle), manifest)
        bundle.write_record(record)
    return record
