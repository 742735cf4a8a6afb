"""From submissions to a cluster, or to files for it: all of a document's runs or none, one driver at a time."""

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from suite.bundle.files import writing
from suite.conduct.cluster.to_do import ToDo, make_room, to_do
from suite.conduct.running.attic import put_back
from suite.launch.cluster.launcher import ClusterLauncher, Document
from suite.launch.cluster.scheduler import Unanswered
from suite.launch.cluster.submission import FOLDER, Submission, read_submission, submission_path, write_submission
from suite.launch.requests import held_back
from suite.spec.base import UsageError
from suite.spec.terminal import detail, say

_WAITING = "waiting for the cluster's answer, so that the job is not forgotten; again to leave at once"


def write_documents(launcher: ClusterLauncher, documents: Sequence[Document], folder: Path, root: Path) -> list[Path]:
    """Put each into a file of a folder, and what collects its runs beside the results. Raises UsageError, also where
    another driver has submitted one of the runs meanwhile."""
    paths = []
    with turn(root):
        for document in documents:
            if len(_still_to_do(document, root, also_rendered=False).manifests) < len(document.submissions):
                raise UsageError(f"{document.name}: another driver has begun it meanwhile; run the same command again")
        for document in documents:
            path = folder / f"{document.name}{launcher.suffix}"
            with writing(path):
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(document.text, encoding="utf-8")
            for submission in document.submissions:
                write_submission(root, submission)
            paths.append(path)
    return paths


def _still_to_do(document: Document, root: Path, also_rendered: bool) -> ToDo:
    """Whether a run that failed is done again was decided when the document was made."""
    return to_do([each.manifest for each in document.submissions], root, retry_failed=True, also_rendered=also_rendered)


def hand_over(
    launcher: ClusterLauncher,
    document: Document,
    root: Path,
    on_taken: Callable[[ToDo], None] = lambda found: None,
) -> tuple[Submission, ...]:
    """Submit one document and write down where its runs are. Raises UsageError, and leaves nothing, when refused.

    What of it is still to be done is decided while no other driver submits from this folder; ``on_taken`` gets what
    others took meanwhile. Each attempt is written down with what the cluster will know it by before it is sent, and
    with the cluster's answer afterwards: whatever happens in between, a later look asks the cluster, and no job is
    forgotten.
    """
    with turn(root):
        found = _still_to_do(document, root, also_rendered=True)
        wanted = {manifest.run.id for manifest in found.manifests}
        documents = [document]
        if len(wanted) < len(document.submissions):
            on_taken(found)
            left = [each for each in document.submissions if each.run_id in wanted]
            documents = launcher.render(left, root) if left else []
        return tuple(submission for each in documents for submission in _sent(launcher, each, root))


def _sent(launcher: ClusterLauncher, document: Document, root: Path) -> tuple[Submission, ...]:
    token, now = secrets.token_hex(4), time.time()
    announced = launcher.announced(document, token)
    drafts = tuple(each.model_copy(update={"submitted": now, "sending": token}) for each in announced.submissions)
    paths = [submission_path(root, each.run_id) for each in drafts]
    new = [path for path in paths if not path.exists()]
    earlier = [read_submission(path) for path in paths if path not in new]
    kept: dict[str, Path] = {}
    with held_back(partial(say, _WAITING, err=True)):
        try:
            for each in drafts:
                write_submission(root, each)
            kept = make_room(root, [each.manifest for each in drafts])
            for line in launcher.sent(announced):
                detail(line)
            submitted = launcher.submit(announced._replace(submissions=drafts), earlier)
        except Unanswered:
            raise  # it stays written down as sent without an answer
        except UsageError:
            for each in earlier:
                write_submission(root, each)
            for path in new:
                path.unlink(missing_ok=True)
            for run_id, path in kept.items():
                put_back(root, run_id, path)
            raise
        answered = tuple(each.model_copy(update={"sending": None}) for each in submitted)
        for each in answered:
            write_submission(root, each)
    return answered


@contextmanager
def turn(root: Path) -> Iterator[None]:
    """Keep other drivers from submitting runs of this folder, and leave no empty one. Raises UsageError."""
    path = root / FOLDER / ".lock"
    descriptor = _locked(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # whoever waits for it finds another file in its place, or none
        os.close(descriptor)
        with suppress(OSError):
            path.parent.rmdir()
            root.rmdir()


def _locked(path: Path) -> int:
    while True:
        with writing(path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            except (FileNotFoundError, FileExistsError):
                if os.path.lexists(path.parent) and not path.parent.is_dir():
                    raise
                continue  # another driver has just taken its empty folder away
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
            os.close(descriptor)
