"""What lies beside the results of runs that were collected, and removing it."""

import time
from pathlib import Path

from suite.bundle.files import writing
from suite.bundle.store import Bundle, DamagedBundle
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.submission import Submission, submission_path, submissions
from suite.spec.base import Frozen


class Leftover(Frozen):
    """What the results folder keeps of a run besides its bundle."""

    run_id: str
    files: tuple[str, ...]
    bytes: int


class Cleaning(Frozen):
    """What can be removed, and why the rest stays."""

    removable: tuple[Leftover, ...]
    kept: dict[str, str]


def leftovers(root: Path, older_than: float | None = None) -> Cleaning:
    """Submissions and outputs of runs that are whole and ended ``older_than`` seconds ago. Raises UsageError."""
    found, kept = [], {}
    for submission in submissions(root):
        why = _needed(root, submission, older_than)
        if why is not None:
            kept[submission.run_id] = why
            continue
        files = [*find_scheduler(submission.launcher).files(submission), submission_path(root, submission.run_id)]
        sizes = {path: path.stat().st_size for path in files if path.is_file() and not path.is_symlink()}
        found.append(Leftover(run_id=submission.run_id, files=tuple(map(str, sizes)), bytes=sum(sizes.values())))
    return Cleaning(removable=tuple(found), kept=kept)


def remove(leftover: Leftover) -> None:
    """The output first, then the submission by which it is found. Raises UsageError."""
    for name in leftover.files:
        with writing(Path(name)):
            Path(name).unlink(missing_ok=True)


def _needed(root: Path, submission: Submission, older_than: float | None) -> str | None:
    """Why a run's files stay; ``None`` where its bundle holds all that they told."""
    bundle = Bundle(root / submission.run_id)
    if not bundle.path.exists():
        return "not collected"
    try:
        manifest, record = bundle.manifest(), bundle.record()
        if bundle.running():
            return "its bundle is being written"
    except DamagedBundle as error:
        return f"its bundle cannot be trusted: {error}"
    if record is None or (manifest.hash, record.run.launcher) != (submission.manifest.hash, submission.launcher):
        return "its bundle has no record yet, or is of another manifest or launcher"
    if submission.submitted is not None and (record.run.ended or 0.0) < submission.submitted:
        return "it was submitted again since"
    if older_than is not None and time.time() - (record.run.ended or 0.0) < older_than:
        return "too young"
    return None
