"""One run: bundle, job, launcher, events, record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from suite.backends.registry import find_backend
from suite.bundle.derive import derive
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle, DriverLog
from suite.conduct.planning.prediction import with_prediction
from suite.conduct.running.provenance import driver_facts
from suite.conduct.running.spare_room import spare_room
from suite.launch.job import Job, JobLimits, Site
from suite.launch.outcome import Failure, Launcher, LauncherAway, Outcome, RunFolder
from suite.spec.base import UsageError
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

    Raises UsageError when the bundle cannot be made, or cannot be written to its end; what there is of it has a record
    then, as far as there is room. Raises LauncherAway, with the run recorded as interrupted, when no other can be
    started. An interrupt ends the run, whose record says ``interrupted``.
    """
    with Bundle.begin(root, manifest) as bundle, spare_room(bundle.path) as spare:
        away: LauncherAway | None = None
        try:
            with bundle.driver_events() as log:
                site = launcher.site(manifest, bundle.path.resolve(), python)
                job = make_job(manifest, site)
                bundle.write_environment(driver_facts(launcher, job, site.bundle))
                log.write("launch", schema="suite/events/1", launcher=launcher.name, ranks=job.ranks, pid=os.getpid())
                folder = RunFolder(events_dir=bundle.path / "events", logs_dir=bundle.path / "logs")
                began = time.monotonic()
                try:
                    outcome = launcher.run(job, folder, on_event)
                except LauncherAway as error:
                    away, outcome = error, _without_launcher(job, error, time.monotonic() - began)
                spare.release()
                _write_end(log, outcome)
        except (OSError, UsageError):
            spare.release()
            with suppress(OSError, UsageError, DamagedBundle):
                bundle.write_record(derive(bundle, is_over=True))
            raise
        record = with_prediction(derive(bundle), manifest)
        bundle.write_record(record)
        if away is not None:
            raise away
    return record


def _write_end(log: DriverLog, outcome: Outcome) -> None:
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


def _without_launcher(job: Job, error: LauncherAway, seconds: float) -> Outcome:
    """Nobody saw the run end, so it is done again as one that was interrupted."""
    failure = Failure(kind="interrupted", evidence=(str(error),))
    codes: dict[int, int | None] = dict.fromkeys(range(job.ranks))
    return Outcome(status="interrupted", exit_codes=codes, elapsed_seconds=seconds, failure=failure)
