"""``python -m suite.worker MANIFEST.json --bundle DIR``: one rank of a run. Exit code 0 ok, 1 failed."""

import argparse
import os
import socket
import sys
import traceback
from typing import Any, Callable, Dict, List, NoReturn, Optional

from suite.worker.devices import check_devices, show_devices_by_number
from suite.worker.events import EVENTS_SCHEMA, EventLog, Progress, beat_seconds
from suite.worker.failures import failure_evidence, failure_kind
from suite.worker.manifest import check_code, check_stack, check_world_size, read_manifest
from suite.worker.process import die_with_launcher, resident_bytes, show_stacks_on_request, without_collector
from suite.worker.rank import ConfigError, RankIdentity, read_rank
from suite.worker.version import __version__

#: ``all``: every rank prints its events, for a launcher that gets nothing but output back
STDOUT_VARIABLE = "SUITE_EVENTS_ON_STDOUT"
#: from a manifest to what builds its engine or trainer (``suite.worker.session.Build``); imports the stack
FindBuild = Callable[[Dict[str, Any]], Any]


def main(arguments: Optional[List[str]] = None, find_build: Optional[FindBuild] = None) -> int:
    """Run this rank and write its events; whatever goes wrong becomes a ``failure`` event.

    A backend of another package starts its ranks with a module of its own, which calls this with ``find_build``.
    """
    parser = argparse.ArgumentParser(prog="suite.worker", description="One rank of a run.")
    parser.add_argument("manifest", help="the run's manifest.json")
    parser.add_argument("--bundle", help="folder that gets events/ (default: the manifest's)")
    options = parser.parse_args(arguments)
    die_with_launcher()
    show_stacks_on_request()
    try:
        identity = read_rank(os.environ)
        manifest = read_manifest(options.manifest)
        folder = options.bundle or os.path.dirname(os.path.abspath(options.manifest))
        everybody = os.environ.get(STDOUT_VARIABLE) == "all"
        log = EventLog(folder, identity.rank, mirror=everybody or identity.rank == 0, in_pieces=everybody)
    except (ConfigError, OSError) as error:
        print("suite.worker: {}".format(error), file=sys.stderr)
        return 1
    _start(log, manifest, identity)
    progress = Progress(log=log, beat_seconds=beat_seconds(manifest["limits"]["silence_seconds"]))
    try:
        seconds = _work(manifest, identity, log, progress, find_build)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it was, an event records it
        _fail(log, error, progress)
        return 1
    log.emit("end", status="ok", iterations=progress.completed_iterations, model_seconds=seconds)
    log.close()
    return 0


def _start(log: EventLog, manifest: Dict[str, Any], identity: RankIdentity) -> None:
    log.emit(
        "start",
        schema=EVENTS_SCHEMA,
        world_size=identity.world_size,
        local_rank=identity.local_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        manifest_hash=manifest["hash"],
        suite_version=__version__,
        resident_bytes=resident_bytes(),
    )


def _work(
    manifest: Dict[str, Any], identity: RankIdentity, log: EventLog, progress: Progress, find_build: Optional[FindBuild]
) -> float:
    check_world_size(manifest, identity)
    check_stack(manifest["stack"])
    if identity.local_rank == 0:
        check_code(manifest.get("stack_code", {}))
        check_devices(os.environ)
    show_devices_by_number(os.environ)
    with without_collector():
        from suite.worker.session import run
    return run(manifest, identity, log, progress, find_build)


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


def leave_process(code: int) -> NoReturn:
    """End this process now: a process group that lost a rank can block the interpreter's own way out."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave_process(main())
