"""One run: bundle, job, launcher, events, record; and room on its disk that is kept free for its end."""

import errno
import os
import shlex
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from suite.backends.registry import find_backend
from suite.bundle.event_fields import is_shown
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle, end_fields, failure_fields
from suite.conduct.planning.prediction import with_prediction
from suite.conduct.running.provenance import driver_facts, origin_of
from suite.launch.job import Job, JobLimits, Place, Site
from suite.launch.outcome import Failure, Launcher, LauncherUnavailable, Outcome
from suite.launch.requests import stop_requests
from suite.launch.turns import Start
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from suite.spec.terminal import detail


def _file_of(folder: Path, size: int) -> BinaryIO:
    """A file of so many bytes without a name, so that a driver that is killed leaves nothing. Raises OSError."""
    file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - its user closes it
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        file.close()
        raise
    return file


def make_job(manifest: Manifest, site: Site) -> Job:
    """The job of a manifest: the same command, environment and limits whatever launches it, with the site's paths."""
    driver = find_backend(manifest.backend.name)
    measure = manifest.measure
    env = {"OMP_NUM_THREADS": str(measure.threads_per_rank), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    if measure.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    env |= {**driver.variables(measure), **site.env}
    # where a user gives one too, the suite's own folder stays the first: ranks find their worker by it
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (site.python_path, site.env.get("PYTHONPATH"))))
    place: dict[str, Any] = {name: getattr(site, name) for name in Place.model_fields} | {"env": env}
    return Job(
        name=manifest.run.id,
        argv=(site.python, *driver.worker_argv(f"{site.bundle}/manifest.json", site.bundle)),
        nodes=manifest.layout.nodes,
        ranks_per_node=manifest.layout.devices_per_node,
        limits=JobLimits(**dict(manifest.limits), memory_bytes=site.memory_bytes),
        **place,
    )


def execute(
    manifest: Manifest,
    root: Path,
    launcher: Launcher,
    python: str,
    on_event: Callable[[dict], None],
    start: Start | None = None,
) -> Record:
    """Run one manifest to its end and derive its record. A failed run is a record too. ``start``: where it takes turns.

    Raises UsageError when the bundle cannot be made, or written to its end; what there is of it has a record then, as
    far as there is room. Raises LauncherUnavailable, with the run recorded as interrupted, when no other can start.
    An interrupt ends the run; one after it is a KeyboardInterrupt. Events that no bundle could hold are not passed on.
    """
    # Ctrl-C between the end of the ranks and the record must not lose it; a thread gets no signals
    stops = stop_requests() if threading.current_thread() is threading.main_thread() else nullcontext()
    with Bundle.begin(root, manifest) as bundle, stops as requests, ExitStack() as spare:
        with suppress(OSError):
            # more than the last events of a driver and a record of a thousand ranks
            spare.enter_context(_file_of(bundle.path, 512 << 10))
        away: LauncherUnavailable | None = None
        try:
            with bundle.driver_events() as log:
                site = launcher.site(manifest, bundle.path.resolve(), python)
                job = make_job(manifest, site)
                bundle.write_environment({**driver_facts(launcher, job, site.bundle), **origin_of(manifest)})
                detail(f"{job.name}: {shlex.join(job.argv)}")
                told = {"launcher": launcher.name, "ranks": job.ranks, "pid": os.getpid()}
                if start is not None:
                    told["turns"], job = {"start": start.id, "rows": [*start.rows]}, start.admit(job)
                log.write("launch", schema="suite/events/1", **told)
                began = time.monotonic()
                try:
                    outcome = launcher.run(job, bundle.path, lambda event: on_event(event) if is_shown(event) else None)
                except LauncherUnavailable as error:  # nobody saw the run end: it is done again, as if interrupted
                    codes: dict[int, int | None] = dict.fromkeys(range(job.ranks))
                    failure, spent = Failure(kind="interrupted", evidence=(str(error),)), time.monotonic() - began
                    outcome = Outcome(status="interrupted", exit_codes=codes, elapsed_seconds=spent, failure=failure)
                    away = error
                outcome = _by_full_disk(outcome, bundle.path)
                spare.close()
                if outcome.failure is not None:
                    log.write("failure", **failure_fields(outcome.failure))
                log.write("end", **end_fields(outcome, job.ranks))
        except (OSError, UsageError):
            spare.close()
            with suppress(OSError, UsageError, DamagedBundle):
                from suite.bundle.derive import derive

                bundle.write_record(derive(bundle, is_over=True))
            raise
        # imported when there is something to derive: a run need not wait for it to start
        from suite.bundle.derive import derive

        record = with_prediction(derive(bundle), manifest)
        bundle.write_record(record)
        if away is not None:
            raise away
        if requests is not None and requests.take() is not None and record.status != "interrupted":
            raise KeyboardInterrupt
    return record


def _by_full_disk(outcome: Outcome, folder: Path) -> Outcome:
    """Ranks that find no room cannot say so where all that they say is written to that disk; others lose them then."""
    was_killed = any(code is not None and code < 0 for code in outcome.exit_codes.values())
    kinds = ("unknown",) if was_killed else ("unknown", "rank_lost")
    if outcome.failure is None or outcome.failure.kind not in kinds:
        return outcome
    try:
        _file_of(folder, 4096).close()  # as much as a rank's last words take
        return outcome
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return outcome
    line = "no space left in the folder of the run, so that its ranks cannot have written why"
    changes = {"kind": "disk_full", "evidence": (line, *outcome.failure.evidence)}
    return outcome.model_copy(update={"failure": outcome.failure.model_copy(update=changes)})
