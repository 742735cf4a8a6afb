"""Runs as batch scripts, written to a folder or handed to Slurm: all of a script's runs or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from suite.conduct.cluster.to_do import make_room
from suite.launch.cluster.submission import FOLDER, Submission, forget_submission, submission_path, write_submission
from suite.launch.slurm.scheduler import submit
from suite.launch.slurm.script import SlurmRun, batch_script, same_request
from suite.launch.slurm.settings import SlurmSettings
from suite.spec.base import UsageError


class Script(NamedTuple):
    """One batch script and the runs in it."""

    name: str
    text: str
    submissions: tuple[Submission, ...]


def scripts(submissions: Sequence[Submission], settings: SlurmSettings, root: Path, as_array: bool) -> list[Script]:
    """A script for each run, or an array for all runs that ask for the same. Raises UsageError as ``batch_script``."""
    groups: dict[str, list[Submission]] = {}
    for submission in submissions:
        key = same_request(submission.job).model_dump_json() if as_array else submission.run_id
        groups.setdefault(key, []).append(submission)
    return [_script(tuple(group), settings, root.resolve()) for group in groups.values()]


def _script(group: tuple[Submission, ...], settings: SlurmSettings, root: Path) -> Script:
    name = group[0].run_id
    text = batch_script([SlurmRun(each.manifest, each.job) for each in group], settings, root)
    facts = {"name": name, "job": None, "output": str(root / FOLDER / name), "starter": settings.starter}
    known = [each.with_scheduler(**facts, index=index if len(group) > 1 else None) for index, each in enumerate(group)]
    return Script(name, text, tuple(known))


def write_scripts(made: Sequence[Script], folder: Path, root: Path) -> list[Path]:
    """Put the scripts into a folder, and what collects their runs beside the results. Raises UsageError."""
    paths = []
    for script in made:
        path = folder / f"{script.name}.sbatch"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(script.text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error
        for submission in script.submissions:
            write_submission(root, submission)
        paths.append(path)
    return paths


def hand_over(made: Sequence[Script], root: Path, on_job: Callable[[str, Script], None]) -> None:
    """Submit script by script. A refused one leaves nothing behind; those before it stay. Raises UsageError."""
    for script in made:
        there_before = {each.run_id: _kept(submission_path(root, each.run_id)) for each in script.submissions}
        now = time.time()
        handed = [each.model_copy(update={"submitted": now}) for each in script.submissions]
        try:
            for each in handed:
                write_submission(root, each)
            job = submit(script.text)
        except BaseException:
            for run_id, text in there_before.items():
                _restore(root, run_id, text)
            raise
        for each in handed:
            index = each.scheduler["index"]
            write_submission(root, each.with_scheduler(job=job if index is None else f"{job}_{index}"))
        make_room(root, [each.manifest for each in handed])
        on_job(job, script)


def _kept(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _restore(root: Path, run_id: str, text: str | None) -> None:
    if text is None:
        forget_submission(root, run_id)
    else:
        submission_path(root, run_id).write_text(text, encoding="utf-8")
