"""The file that says what a cluster has."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.submission import (
    FOLDER,
    Submission,
    read_submission,
    submission_path,
    submissions,
    write_submission,
)
from suite.launch.job import Job
from suite.spec.base import UsageError
from tests.synthetic import synthetic_manifest


def submission(repeat: int = 1, submitted: float | None = None) -> Submission:
    manifest = synthetic_manifest(repeat=repeat)
    return Submission(
        launcher="slurm",
        manifest=manifest,
        job=Job(name=manifest.run.id, argv=("python",), ranks_per_node=1),
        environment={"launcher": "slurm"},
        submitted=submitted,
        scheduler={"job": "12"},
    )


def test_what_is_written_is_read_again_oldest_first_and_may_be_replaced(tmp_path: Path) -> None:
    assert list(submissions(tmp_path / "nowhere")) == []
    path = write_submission(tmp_path / "runs", submission())
    assert read_submission(path) == submission()
    later = submission(submitted=5.0).with_scheduler(job="13")
    write_submission(tmp_path / "runs", later)
    assert list(submissions(tmp_path / "runs")) == [later]
    assert later.scheduler == {"job": "13"}
    write_submission(tmp_path / "runs", earlier := submission(repeat=2, submitted=4.0))
    assert list(submissions(tmp_path / "runs")) == [earlier, later]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "suite/submission/2"}', "\0"])
def test_a_damaged_one_is_one_line(tmp_path: Path, text: str) -> None:
    path = submission_path(tmp_path, "run")
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UsageError, match=r"run\.json is no submission"):
        read_submission(path)


def edited(root: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The file of a submission with something else in it."""
    path = write_submission(root, submission())
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))
    return path


@pytest.mark.parametrize("run_id", ["../../../../etc", "run\x1b[31m", "", "other", "a/b", ".", "x" * 300])
@pytest.mark.parametrize("where", ["manifest", "job"])
def test_one_that_is_of_another_run_is_refused_in_printable_words(tmp_path: Path, run_id: str, where: str) -> None:
    def change(body: dict[str, Any]) -> None:
        part, name = (body["manifest"]["run"], "id") if where == "manifest" else (body["job"], "name")
        part[name] = run_id

    path = edited(tmp_path, change)
    with pytest.raises(UsageError, match="is no submission") as caught:
        read_submission(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("run_id", ["../run", "/etc/passwd", "a\x1b[0m", ""])
def test_what_is_no_run_id_is_no_path(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(UsageError, match="is no run id"):
        submission_path(tmp_path, run_id)


def test_its_output_lies_beside_it_wherever_it_says(tmp_path: Path) -> None:
    """A folder that was moved has its output with it, and one that was made up has nothing else read or written."""
    for place in ("/etc/passwd", "../../passwd", "passwd"):
        path = edited(tmp_path, lambda body, place=place: body["engine"].update(output=place, spool=place))
        found = read_submission(path).scheduler
        assert found["output"] == found["spool"] == str(tmp_path.resolve() / FOLDER / "passwd")
    for place in ("/etc/", "..", "a\0b", ""):
        with pytest.raises(UsageError, match="its output names no file"):
            read_submission(edited(tmp_path, lambda body, place=place: body["engine"].update(output=place)))


def test_a_link_a_pipe_and_a_file_without_end_are_not_read(tmp_path: Path) -> None:
    path = write_submission(tmp_path, submission())
    with path.open("r+b") as file:
        file.truncate(3 << 30)
    with pytest.raises(UsageError, match="more than the 16777216 that are read"):
        list(submissions(tmp_path))
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="is a symbolic link"):
        list(submissions(tmp_path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="is not a regular file"):
        list(submissions(tmp_path))


def test_its_manifest_has_no_file_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    path = edited(tmp_path, lambda body: body["manifest"]["workload"].update(lengths=f"list:{tmp_path / 'secret'}"))
    with pytest.raises(UsageError, match="lengths is text, must be an object"):
        read_submission(path)


def test_what_cannot_be_read_or_written_is_one_line_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run was not submitted from"):
        read_submission(submission_path(tmp_path, "run"))
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UsageError, match="cannot write"):
        write_submission(tmp_path / "runs", submission())


@pytest.mark.parametrize("launcher", ["slurm", "kubernetes"])
@pytest.mark.parametrize("scheduler", [{}, {"job": 7, "settings": [], "name": None}])
def test_one_that_does_not_tell_where_the_run_is_is_one_line(launcher: str, scheduler: dict) -> None:
    lost = submission().model_copy(update={"launcher": launcher, "scheduler": scheduler})
    for ask in (find_scheduler(launcher).look, find_scheduler(launcher).gather):
        with pytest.raises(UsageError, match="its submission file has no usable"):
            ask(lost)
