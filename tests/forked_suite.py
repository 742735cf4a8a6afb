"""The `suite` command in a fork of the tests' own process: what it says and does without the second of its imports.

Tests of how the command starts, is stopped or meets its streams start it anew.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NoReturn

import suite.cli
import suite.conduct
import suite.launch
import suite.planner
from suite.cli.main import main
from tests.scripted_suite import use_scripted_worker

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 60
#: what commands import only when they need it
USED = (suite.cli, suite.conduct, suite.launch, suite.planner)


@cache
def _import_once() -> None:
    """All that a command may import, so that no fork has to."""
    for package in USED:
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith(".__main__"):
                import_module(found.name)


def forked_suite(
    *arguments: str, scripted: bool = False, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``suite *arguments`` in the checkout, with this environment alone if given; SIGALRM ends it after a minute.

    ``scripted``: with the scripted worker in the place of both engines.
    """
    _import_once()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _be_suite(arguments, scripted, environment, output.fileno(), error.fileno())
        _, status = os.waitpid(child, 0)
        told = []
        for stream in (output, error):
            stream.seek(0)
            told.append(stream.read().decode())
    return subprocess.CompletedProcess(["suite", *arguments], os.waitstatus_to_exitcode(status), *told)


def _be_suite(
    arguments: tuple[str, ...], scripted: bool, environment: Mapping[str, str] | None, output: int, error: int
) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, standard in ((nothing, 0), (output, 1), (error, 2)):
            os.dup2(descriptor, standard)
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        os.chdir(ROOT)
        sys.argv = ["suite", *arguments]
        if scripted:
            use_scripted_worker()
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the fork must not go on as the tests
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
