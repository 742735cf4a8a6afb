"""What a run prints, while it runs and afterwards: from its bundle, or from the cluster that has it."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from suite.bundle.store import Bundle
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.submission import read_submission, submission_path, submitted_ids
from suite.launch.stream import natural, read_on
from suite.spec.base import UsageError
from suite.spec.names import nearest

POLL_SECONDS = 1.0
Show = Callable[[str, list[bytes]], None]
#: by stream, what came since the last call with this place; at first so many last lines
Read = Callable[[dict[str, Any], int], list[tuple[str, list[bytes]]]]
#: whether more may come, and how far the run is in a few words
State = Callable[[], tuple[bool, str]]


def follow_log(root: Path, run: str, lines: int, follow: bool, show: Show, tell: Callable[[str], None]) -> None:
    """Show the last lines that a run printed, and with ``follow`` what comes until it is over. ``run``: its id, or the
    folder of its bundle. Raises UsageError, also where there is none."""
    read, state = _log_of(root, run)
    place: dict[str, Any] = {}
    before = ""
    while True:
        # asked first: what is printed between the last look and the end is then still read
        more, word = state()
        if word != before:
            tell(word)
            before = word
        for stream, found in read(place, lines):
            show(stream, found)
        if not (follow and more):
            return
        time.sleep(POLL_SECONDS)


def _log_of(root: Path, run: str) -> tuple[Read, State]:
    bundle = next((Bundle(path) for path in (root / run, Path(run)) if (path / "manifest.json").exists()), None)
    if bundle is not None:
        return partial(_of_bundle, bundle.path), lambda: (bundle.running(), "")
    if submission_path(root, run).exists():
        from suite.conduct.cluster.standing import standing

        submission = read_submission(submission_path(root, run))

        def state() -> tuple[bool, str]:
            now = standing(root, submission)
            return now.is_under_way, now.line

        return partial(find_scheduler(submission.launcher).printed, submission), state
    near = nearest(run, known_runs(root))
    raise UsageError(f"there is no run {run!r} in {root}{near}: neither a bundle nor submitted from it")


def _of_bundle(path: Path, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
    files = sorted((path / "logs").glob("*.log"), key=lambda file: natural(file.stem))
    return [(file.stem, read_on(file, place, lines)) for file in files]


def known_runs(root: Path) -> list[str]:
    """Ids of the runs of a results folder that have a bundle or were submitted; no cluster is asked."""
    return sorted({*(path.parent.name for path in root.glob("*/manifest.json")), *submitted_ids(root)})
