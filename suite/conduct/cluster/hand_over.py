"""From submissions to a cluster, or to files for it: all of a document's runs or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from suite.conduct.cluster.to_do import ToDo, make_room, prepare, to_do
from suite.launch.cluster.launcher import ClusterLauncher, Document
from suite.launch.cluster.submission import (
    Submission,
    forget_submission,
    read_submission,
    submission_path,
    write_submission,
)
from suite.spec.base import UsageError
from suite.spec.foreign import read_text
from suite.spec.manifest import Manifest


def documents_to_do(
    launcher: ClusterLauncher,
    manifests: Sequence[Manifest],
    root: Path,
    retry_failed: bool,
    check: Callable[[Sequence[Manifest]], None],
) -> tuple[list[Document], ToDo]:
    """What the scheduler takes for the runs that no results folder and no cluster has yet.

    ``check`` gets these runs, and raises where they should not be started. Raises UsageError.
    """
    found = to_do(manifests, root, retry_failed)
    check(found.manifests)
    return launcher.render(prepare(found.manifests, launcher.scheduler(), launcher.site), root), found


def write_documents(launcher: ClusterLauncher, documents: Sequence[Document], folder: Path, root: Path) -> list[Path]:
    """Put each into a file of a folder, and what collects its runs beside the results. Raises UsageError."""
    paths = []
    for document in documents:
        path = folder / f"{document.name}{launcher.suffix}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(document.text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
        for submission in document.submissions:
            write_submission(root, submission)
        paths.append(path)
    return paths


def hand_over(launcher: ClusterLauncher, document: Document, root: Path) -> tuple[Submission, ...]:
    """Submit one document and write down where its runs are. Raises UsageError, and leaves nothing, when refused.

    It is written down before it is submitted: a driver that dies in between leaves nothing that cannot be found.
    """
    now = time.time()
    drafts = tuple(each.model_copy(update={"submitted": now}) for each in document.submissions)
    paths = {each.run_id: submission_path(root, each.run_id) for each in drafts}
    earlier = [read_submission(path) for path in paths.values() if path.exists()]
    texts = {run_id: read_text(path, str(path)) if path.exists() else None for run_id, path in paths.items()}
    try:
        for each in drafts:
            write_submission(root, each)
        submitted = launcher.submit(document._replace(submissions=drafts), earlier)
    except BaseException:
        for run_id, text in texts.items():
            _restore(root, run_id, text)
        raise
    for each in submitted:
        write_submission(root, each)
    make_room(root, [each.manifest for each in submitted])
    return submitted


def _restore(root: Path, run_id: str, text: str | None) -> None:
    if text is None:
        forget_submission(root, run_id)
    else:
        submission_path(root, run_id).write_text(text, encoding="utf-8")
