"""A test whose programs are missing is skipped with the reason, and fails in CI."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.needs import require_programs, skip_outside_ci, started_or_skipped


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, and no CI."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def write(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_ci_fails_where_others_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no docker"):
        skip_outside_ci("no docker")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no docker"):
        skip_outside_ci("no docker")


def test_the_missing_programs_are_named_and_so_is_root(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(programs / "dockerd", "exit 0")
    require_programs("not here", "dockerd")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match=r"^not here: no ip, root$"):
        require_programs("not here", "dockerd", "ip", root=True)


def test_a_daemon_that_does_not_start_is_a_skip_and_an_error_of_the_test_itself_is_none(programs: Path) -> None:
    @contextmanager
    def starting(error: Exception | None):
        if error:
            raise error
        yield

    broken = starting(RuntimeError("first line\nno cgroups\n"))
    with pytest.raises(pytest.skip.Exception, match=r"^not here: no cgroups$"), started_or_skipped("not here", broken):
        raise AssertionError("it did not start")
    with pytest.raises(RuntimeError, match="the test's own"), started_or_skipped("not here", starting(None)):
        raise RuntimeError("the test's own")
