"""What a run prints, while it runs and afterwards: from its bundle, or from the cluster that has it."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from suite.bundle.store import Bundle
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.submission import FOLDER, read_submission, submission_path
from suite.launch.stream import read_on
from suite.spec.base import UsageError
from suite.spec.names import nearest

POLL_SECONDS = 1.0
Show = Callable[[str, list[bytes]], None]
Tell = Callable[[str], None]


class Log(NamedTuple):
    """What a run prints.

    ``read``: by stream, what came since the last call with this place; at first so many last lines. ``state``: whether
    more may come, and how far the run is in a few words; empty where there is nothing to say.
    """

    read: Callable[[dict[str, Any], int], list[tuple[str, list[bytes]]]]
    state: Callable[[], tuple[bool, str]]


def find_log(root: Path, run: str) -> Log:
    """The log of a run by its id, or of a bundle by its folder. Raises UsageError where there is none."""
    bundle = next((Bundle(path) for path in (root / run, Path(run)) if (path / "manifest.json").exists()), None)
    if bundle is not None:
        return Log(partial(_of_bundle, bundle.path), lambda: (bundle.running(), ""))
    if submission_path(root, run).exists():
        submission = read_submission(submission_path(root, run))
        scheduler = find_scheduler(submission.launcher)

        def state() -> tuple[bool, str]:
            if (root / submission.run_id).exists():
                return False, "collected"
            now = scheduler.look(submission)
            return now.phase in ("pending", "running"), f"{now.word} {now.detail}".rstrip()

        return Log(partial(scheduler.printed, submission), state)
    known = known_runs(root)
    raise UsageError(f"there is no run {run!r} in {root}{nearest(run, known)}: neither a bundle nor submitted from it")


def _of_bundle(path: Path, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
    files = sorted((path / "logs").glob("*.log"), key=_natural)
    return [(file.stem, read_on(file, place, lines)) for file in files]


def known_runs(root: Path) -> list[str]:
    """Ids of the runs of a results folder that have a bundle or were submitted; no cluster is asked."""
    return sorted({*(path.parent.name for path in root.glob("*/manifest.json")), *submitted(root)})


def submitted(root: Path) -> list[str]:
    """Ids of the runs that were submitted from a results folder."""
    return sorted(path.stem for path in (root / FOLDER).glob("*.json") if not path.name.startswith("."))


def follow_log(log: Log, lines: int, follow: bool, show: Show, tell: Tell) -> None:
    """Show the last lines, and with ``follow`` what comes until the run is over. Raises UsageError."""
    place: dict[str, Any] = {}
    before = ""
    while True:
        # asked first: what is printed between the last look and the end is then still read
        more, word = log.state()
        if word and word != before:
            tell(word)
            before = word
        for stream, found in log.read(place, lines):
            show(stream, found)
        if not (follow and more):
            return
        time.sleep(POLL_SECONDS)


def _natural(path: Path) -> tuple[str, int, str]:
    """rank-2 before rank-10."""
    head, _, number = path.stem.rpartition("-")
    return (head, int(number), "") if number.isdecimal() else (path.stem, 0, path.stem)
