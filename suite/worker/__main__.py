"""``python -m suite.worker MANIFEST.json --bundle DIR``: one rank of a run. Exit code 0 ok, 1 failed."""

import argparse
import os
import socket
import sys
import traceback
from typing import Any, Dict, List, Optional

from suite.worker.events import EVENTS_SCHEMA, EventLog
from suite.worker.failures import failure_evidence, failure_kind
from suite.worker.manifest import check_place, check_stack, read_manifest
from suite.worker.place import ConfigError, Place, read_place
from suite.worker.process import die_with_launcher, show_stacks_on_request, without_collector
from suite.worker.progress import Progress
from suite.worker.resident import resident_bytes
from suite.worker.version import __version__


def main(arguments: Optional[List[str]] = None) -> int:
    """Run this rank and tell of it in events; whatever goes wrong becomes a ``failure`` event."""
    options = _parse(arguments)
    die_with_launcher()
    show_stacks_on_request()
    try:
        place = read_place(os.environ)
        manifest = read_manifest(options.manifest)
        log = EventLog(
            options.bundle or os.path.dirname(os.path.abspath(options.manifest)), place.rank, place.rank == 0
        )
    except (ConfigError, OSError) as error:
        print("suite.worker: {}".format(error), file=sys.stderr)
        return 1
    _start(log, manifest, place)
    progress = Progress()
    try:
        seconds = _work(manifest, place, log, progress)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it was, an event tells it
        _fail(log, error, progress)
        return 1
    log.emit("end", status="ok", iterations=progress.completed_iterations, model_seconds=seconds)
    log.close()
    return 0


def _parse(arguments: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="suite.worker", description="One rank of a run.")
    parser.add_argument("manifest", help="the run's manifest.json")
    parser.add_argument("--bundle", help="folder that gets events/ (default: the manifest's)")
    return parser.parse_args(arguments)


def _start(log: EventLog, manifest: Dict[str, Any], place: Place) -> None:
    log.emit(
        "start",
        schema=EVENTS_SCHEMA,
        world_size=place.world_size,
        local_rank=place.local_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        manifest_hash=manifest["hash"],
        suite_version=__version__,
        resident_bytes=resident_bytes(),
    )


def _work(manifest: Dict[str, Any], place: Place, log: EventLog, progress: Progress) -> float:
    check_place(manifest, place)
    check_stack(manifest["stack"])
    with without_collector():
        from suite.worker.session import run
    return run(manifest, place, log, progress)


def _fail(log: EventLog, error: BaseException, progress: Progress) -> None:
    traceback.print_exception(type(error), error, error.__traceback__)
    log.emit(
        "failure",
        failure=failure_kind(error, progress.phase),
        phase=progress.phase,
        iteration=progress.iteration,
        evidence=failure_evidence(error),
    )
    log.emit("end", status="failed", iterations=progress.completed_iterations)
    log.close()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # A process group that lost a rank can block the interpreter's own way out.
    os._exit(code)
