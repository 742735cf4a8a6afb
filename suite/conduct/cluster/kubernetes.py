"""Runs as the objects of a Kubernetes cluster, written to a folder or handed over: all of a run's objects or none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from suite.conduct.cluster.to_do import make_room
from suite.launch.cluster.submission import FOLDER, Submission, read_submission, submission_path, write_submission
from suite.launch.kubernetes.client import Cluster
from suite.launch.kubernetes.run import render_run, scheduler_facts, submit_run
from suite.launch.kubernetes.scheduler import clear_away
from suite.launch.kubernetes.settings import KubernetesSettings
from suite.spec.base import UsageError


class Objects(NamedTuple):
    """One run's YAML."""

    submission: Submission
    text: str


def rendered(submissions: Sequence[Submission], settings: KubernetesSettings) -> list[Objects]:
    """The objects of every run. Raises UsageError where a job cannot be what the settings ask for."""
    return [Objects(submission, render_run(submission, settings)) for submission in submissions]


def write_objects(
    made: Sequence[Objects], settings: KubernetesSettings, context: str | None, folder: Path, root: Path
) -> list[Path]:
    """Put the YAML into a folder, and what collects the runs beside the results. Raises UsageError."""
    paths = []
    for submission, text in made:
        path = folder / f"{submission.run_id}.yaml"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
        facts = scheduler_facts(submission, settings, spool_path(root, submission.run_id))
        write_submission(root, submission.with_scheduler(context=context, **facts))
        paths.append(path)
    return paths


def hand_over(cluster: Cluster, submission: Submission, settings: KubernetesSettings, root: Path) -> Submission:
    """Give one run to the cluster and write down where it is. Raises UsageError, and leaves nothing, when refused.

    What the cluster still has of an earlier attempt, which is to be done again, makes room first.
    """
    spool, earlier = spool_path(root, submission.run_id), submission_path(root, submission.run_id)
    if earlier.exists():
        clear_away(cluster, read_submission(earlier))
    handed = submit_run(cluster, submission, settings, spool)
    write_submission(root, handed)
    make_room(root, [handed.manifest])
    return handed


def spool_path(root: Path, run_id: str) -> Path:
    """Where the last words of a cancelled run are kept; no submission's name."""
    return root / FOLDER / f"{run_id}.kept"
