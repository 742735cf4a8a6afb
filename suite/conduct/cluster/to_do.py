"""From a plan to what is submitted to a cluster: which runs are still to be done, and each as a submission."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from suite.conduct.cluster.image_file import content_name, is_file
from suite.conduct.running.attic import set_aside
from suite.conduct.running.execute import make_job
from suite.conduct.running.provenance import driver_facts, origin_of
from suite.conduct.running.state import state_of
from suite.launch.cluster.launcher import ClusterLauncher
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.scheduler import Scheduler, SchedulerState
from suite.launch.cluster.submission import Submission, read_submission, submission_path
from suite.spec.manifest import Manifest


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
    others: dict[str, list[str]] = {"done": [], "failed": [], "under_way": [], "uncollected": []}
    left = []
    for manifest in manifests:
        list_name = _list_of(root, manifest, retry_failed, also_rendered)
        if list_name is None:
            left.append(manifest)
        else:
            others[list_name].append(manifest.run.id)
    return ToDo(tuple(left), others)


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
    phase = look(find_scheduler(submission.launcher), submission).phase
    return {"pending": "under_way", "running": "under_way", "over": "uncollected"}.get(phase)


def make_room(root: Path, manifests: Sequence[Manifest]) -> dict[str, Path]:
    """Move aside the bundles of runs that are done once more; where each is kept, by run id."""
    kept = {}
    for manifest in manifests:
        moved = set_aside(root, manifest, lambda state: state not in ("done", "running")).kept
        if moved is not None:
            kept[manifest.run.id] = moved
    return kept


def prepare(manifests: Sequence[Manifest], launcher: ClusterLauncher) -> list[Submission]:
    """Each run's job on the cluster, and what its environment.json is to hold."""
    prepared, scheduler = [], launcher.scheduler()
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


def look(scheduler: Scheduler, submission: Submission) -> SchedulerState:
    """How far a run is; ``pending`` while a cluster that gave no answer may still take it. Raises UsageError."""
    state = scheduler.look(submission)
    if state.phase != "gone" or submission.sending is None or submission.submitted is None:
        return state
    since = time.time() - submission.submitted
    if abs(since) < scheduler.settle_seconds:
        return SchedulerState(
            phase="pending",
            word="sending",
            detail=f"handed over {since:.0f} s ago without an answer; not taken, if it is unknown after "
            f"{scheduler.settle_seconds:.0f} s",
        )
    return SchedulerState(phase="gone", word="not taken", detail="the cluster never answered, and does not know it")
