"""What a run prints, while it runs and afterwards: from its bundle, or from the cluster that has it."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from suite.bundle.store import Bundle
from suite.conduct.cluster.standing import standing
from suite.launch.cluster.launcher import SchedulerState
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.submission import read_submission, submission_path, submitted_ids
from suite.launch.stream import natural, read_on
from suite.spec.base import UsageError
from suite.spec.names import nearest

POLL_SECONDS = 1.0
Show = Callable[[str, list[bytes]], None]
#: by stream, what came since the last call with this place; at first so many last lines
Read = Callable[[dict[str, Any], int], list[tuple[str, list[bytes]]]]


def follow_log(root: Path, run: str, lines: int, follow: bool, show: Show, tell: Callable[[str], None]) -> None:
    """Show the last lines that a run printed, and with ``follow`` what comes until it is over. ``run``: its id, or the
    folder of its bundle. Raises UsageError, also where there is none."""
    read, state = _log_of(root, run)
    place: dict[str, Any] = {}
    before = ""
    while True:
        # asked first: what is printed between the last look and the end is then still read
        now = state()
        if now.line != before:
            tell(now.line)
            before = now.line
        for stream, found in read(place, lines):
            show(stream, found)
        if not (follow and now.is_under_way):
            return
        time.sleep(POLL_SECONDS)


def _log_of(root: Path, run: str) -> tuple[Read, Callable[[], SchedulerState]]:
    bundle = next((Bundle(path) for path in (root / run, Path(run)) if (path / "manifest.json").exists()), None)
    if bundle is not None:
        read = partial(_of_bundle, bundle.path)
        return read, lambda: SchedulerState(phase="running" if bundle.running() else "over", word="")
    if submission_path(root, run).exists():
        submission = read_submission(submission_path(root, run))
        return partial(find_scheduler(submission.launcher).printed, submission), partial(standing, root, submission)
    near = nearest(run, known_runs(root))
    raise UsageError(f"there is no run {run!r} in {root}{near}: neither a bundle nor submitted from it")


def _of_bundle(path: Path, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
    files = sorted((path / "logs").glob("*.log"), key=lambda file: natural(file.stem))
    return [(file.stem, read_on(file, place, lines)) for file in files]


def known_runs(root: Path) -> list[str]:
    """Ids of the runs of a results folder that have a bundle or were submitted; no cluster is asked."""
    return sorted({*(path.parent.name for path in root.glob("*/manifest.json")), *submitted_ids(root)})
