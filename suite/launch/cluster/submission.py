"""What was submitted to a cluster: all that is needed to find a run there and to make its bundle, in one small file."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json

from suite.launch.job import Job
from suite.spec.base import UsageError, first_line
from suite.spec.fields import Declaring, Later
from suite.spec.foreign import read_text
from suite.spec.manifest import Manifest
from suite.spec.names import SAFE_ID
from suite.spec.redaction import public_variables
from suite.spec.schema_files import not_read

SUBMISSION_SCHEMA: Literal["suite/submission/1"] = "suite/submission/1"
#: Folder below a results folder; hidden, so that no report looks for bundles in it.
FOLDER = ".submitted"
#: Results folder of first, short runs below a results folder; hidden likewise.
SMOKE = ".smoke"


class Submission(Declaring):
    """One run that a cluster has, or had. The driver may end: this is what the next one goes on from."""

    model_config = ConfigDict(populate_by_name=True)  # the file calls the scheduler's facts "engine"

    schema_: Literal["suite/submission/1"] = Field(default=SUBMISSION_SCHEMA, alias="schema")
    launcher: str = Field(description="name of a cluster launcher")
    manifest: Manifest
    job: Job
    environment: dict[str, Any] = Field(description="what environment.json is to hold")
    submitted: float | None = Field(default=None, description="Unix seconds; null: rendered, not submitted")
    sending: Annotated[str | None, Later()] = Field(
        default=None,
        description="what marks an attempt whose answer was not written down: the cluster may have it or not",
    )
    scheduler: dict[str, Any] = Field(
        default={}, alias="engine", description="where the scheduler has it: its own names and numbers"
    )

    @property
    def run_id(self) -> str:
        return self.manifest.run.id

    def fact(self, name: str, *kinds: type) -> Any:
        """One of the scheduler's facts. Raises UsageError where it is none of these types."""
        value = self.scheduler.get(name)
        if not isinstance(value, kinds):
            raise UsageError(f"{self.run_id}: its submission file has no usable {name}; submit it once more")
        return value

    def with_scheduler(self, **facts: Any) -> "Submission":
        """The same with more of what the scheduler calls it."""
        return self.model_copy(update={"scheduler": {**self.scheduler, **facts}})


def submission_path(root: Path, run_id: str) -> Path:
    """Raises UsageError for what cannot be a run's id, and might be a path to elsewhere."""
    if not SAFE_ID.fullmatch(run_id):
        raise UsageError(f"{ascii(run_id)[:90]} is no run id")
    return root / FOLDER / f"{run_id}.json"


def write_submission(root: Path, submission: Submission) -> Path:
    """Put it under the results folder, without variables that hold a secret. Raises as ``replace_file``."""
    path = submission_path(root, submission.run_id)
    job = submission.job.model_copy(update={"env": public_variables(submission.job.env)})
    submission = submission.model_copy(update={"job": job})
    replace_file(path, submission.model_dump_json(by_alias=True, indent=2) + "\n")
    return path


def replace_file(path: Path, text: str) -> None:
    """Write all of a file, or leave the older one. Raises UsageError when it cannot be written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with draft.open("x", encoding="utf-8") as file:  # through no link that somebody left there
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # it may be all that is known of a job that a cluster has
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from error


def read_submission(path: Path) -> Submission:
    """Of whoever handed the results folder in. Raises UsageError when there is none or it cannot be used."""
    try:
        text = read_text(path, str(path))
    except FileNotFoundError as error:
        raise UsageError(f"{path.stem} was not submitted from {path.parent.parent} (no {path})") from error
    try:
        body = from_json(text)
        given = body if isinstance(body, dict) else {}
        if (told := given.get("schema", SUBMISSION_SCHEMA)) != SUBMISSION_SCHEMA:
            raise ValueError(not_read("it", told, SUBMISSION_SCHEMA))
        return _of_here(Submission.model_validate_json(text), path)
    except (ValueError, OverflowError) as error:  # also no JSON, and a number beyond all others
        why = first_line(error) if isinstance(error, ValidationError) else " ".join(str(error).split())[:200]
        raise UsageError(f"{path} is no submission: {why}") from error


def _of_here(found: Submission, path: Path) -> Submission:
    """With files beside its own wherever it says that they are: the folder may have been moved, or made up. Raises
    ValueError where it is of another run than the one that its file is named after."""
    for run_id in (found.run_id, found.job.name):
        if run_id != path.stem or not SAFE_ID.fullmatch(run_id):
            raise ValueError(f"it is of {ascii(run_id)[:90]}")
    moved = {}
    for name in ("output", "spool"):
        if isinstance(place := found.scheduler.get(name), str):
            last = os.path.basename(place)
            if last in ("", ".", "..") or "\0" in last:
                raise ValueError(f"its {name} names no file")
            moved[name] = os.path.join(os.path.realpath(path.parent), last)
    return found.with_scheduler(**moved)


def submitted_ids(root: Path) -> list[str]:
    """Ids of the runs that were submitted from a results folder; nothing else is read."""
    return sorted(path.stem for path in (root / FOLDER).glob("*.json") if not path.name.startswith("."))


def submissions(root: Path) -> list[Submission]:
    """All that were handed over from a results folder, oldest first. Raises UsageError for what is no folder."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is not a folder")
    found = [read_submission(submission_path(root, run_id)) for run_id in submitted_ids(root)]
    return sorted(found, key=lambda each: (each.submitted or 0.0, each.run_id))
