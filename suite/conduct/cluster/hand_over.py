"""From a plan to a cluster, or to files for it: what is still to be done, one driver at a time."""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from suite.bundle.files import locked, writing
from suite.conduct.cluster.machine import content_name, is_file
from suite.conduct.cluster.standing import look
from suite.conduct.running.attic import put_back, set_aside
from suite.conduct.running.execute import make_job
from suite.conduct.running.provenance import driver_facts, origin_of
from suite.conduct.running.state import state_of
from suite.launch.cluster.launcher import ClusterLauncher, Document, Unanswered
from suite.launch.cluster.submission import FOLDER, Submission, read_submission, submission_path, write_submission
from suite.launch.requests import held_back
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from suite.spec.terminal import detail, say

_WAITING = "waiting for the cluster's answer, so that the job is not forgotten; again to leave at once"


class ToDo(NamedTuple):
    """Runs of a plan that are to be done, and ids of the others: done, failed, under way, uncollected."""

    manifests: tuple[Manifest, ...]
    others: dict[str, list[str]]

    def with_others(self, found: "ToDo") -> "ToDo":
        """With the runs that another driver is found to have done or begun since."""
        return ToDo(self.manifests, {name: ids + found.others[name] for name, ids in self.others.items()})


def to_do(manifests: Sequence[Manifest], root: Path, retry_failed: bool, also_rendered: bool = False) -> ToDo:
    """What of a plan no bundle and no cluster has yet. ``also_rendered``: ask for runs that were rendered here, which
    the user may have handed over. Raises UsageError when a cluster cannot be asked."""
    found = [(each, _list_of(root, each, retry_failed, also_rendered)) for each in manifests]
    names = ("done", "failed", "under_way", "uncollected")
    others = {name: [each.run.id for each, own in found if own == name] for name in names}
    return ToDo(tuple(each for each, own in found if own is None), others)


def _list_of(root: Path, manifest: Manifest, retry_failed: bool, also_rendered: bool) -> str | None:
    """The list of ``ToDo`` that a run belongs to; ``None`` where it is still to be done."""
    state = state_of(root, manifest)
    if state == "failed before":
        return None if retry_failed else "failed"
    path = submission_path(root, manifest.run.id)
    if state != "to run" or not path.exists():
        return {"done": "done", "running": "under_way"}.get(state)
    submission = read_submission(path)
    if submission.submitted is None and not also_rendered:
        return None
    phase = look(submission).phase
    return {"pending": "under_way", "running": "under_way", "over": "uncollected"}.get(phase)


def prepare(manifests: Sequence[Manifest], launcher: ClusterLauncher) -> list[Submission]:
    """Each run's job on the cluster, and what its environment.json is to hold."""
    prepared, scheduler = [], type(launcher).scheduler()
    for manifest in manifests:
        site = launcher.site(manifest)
        job = make_job(manifest, site)
        facts = {**driver_facts(scheduler, job, site.bundle), **origin_of(manifest)}
        if launcher.starter is not None:
            facts["starter"] = launcher.starter
        if job.image is not None and is_file(job.image):
            facts["image"] = {"reference": job.image, "digest": content_name(job.image)}
        prepared.append(Submission(launcher=scheduler.name, manifest=manifest, job=job, environment=facts))
    return prepared


def write_documents(launcher: ClusterLauncher, documents: Sequence[Document], folder: Path, root: Path) -> list[Path]:
    """Put each into a file of a folder, and what collects its runs beside the results. Raises UsageError, also where
    another driver has submitted one of the runs meanwhile."""
    paths = []
    with turn(root):
        for document in documents:
            wanted = [each.manifest for each in document.submissions]
            if len(to_do(wanted, root, retry_failed=True).manifests) < len(wanted):
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


def hand_over(
    launcher: ClusterLauncher, document: Document, root: Path, on_taken: Callable[[ToDo], None] = lambda found: None
) -> tuple[Submission, ...]:
    """Submit one document and write down where its runs are. Raises UsageError, and leaves nothing, when refused.

    What of it is still to be done is decided while no other driver submits from this folder; ``on_taken`` gets what
    others took meanwhile. An attempt is written down before it is sent, with what the cluster will know it by, and with
    the answer afterwards: whatever happens in between, a later look asks the cluster, and no job is forgotten.
    """
    with turn(root):
        # whether a run that failed is done again was decided when the document was made
        found = to_do([each.manifest for each in document.submissions], root, retry_failed=True, also_rendered=True)
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
            for each in drafts:
                _, moved = set_aside(root, each.manifest, lambda state: state not in ("done", "running"))
                if moved is not None:
                    kept[each.run_id] = moved
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
            path.parent.rmdir()
            root.rmdir()
        os.close(descriptor)


def _locked(path: Path) -> int:
    while True:
        with writing(path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = locked(path, os.O_RDWR | os.O_CREAT, wait=True)
            except (FileNotFoundError, FileExistsError):
                if os.path.lexists(path.parent) and not path.parent.is_dir():
                    raise
                continue  # another driver has just taken its empty folder away
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
            os.close(descriptor)
