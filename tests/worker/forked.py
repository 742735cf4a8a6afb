"""Ranks forked from a process that has imported both stacks: a test of what a rank does need not wait for imports.

Tests of how a rank starts, dies or is launched start it anew (``tests.worker.tiny.start_rank``).
"""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock


def fork(argv: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path, error: Path) -> BaseProcess:
    """Start ``python -m *argv`` in ``folder`` with this environment alone, its standard streams in two files."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.worker.stacks"])
    with mock.patch.dict(os.environ, dict(environment), clear=True):
        forkserver.ensure_running()  # the first call starts it, with what a stack reads as it is imported
    arguments = (list(argv), dict(environment), str(folder), str(output), str(error))
    process = context.Process(target=_be, args=arguments, daemon=True)
    process.start()
    return process


def _be(argv: list[str], environment: dict[str, str], folder: str, output: str, error: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for path, stream in ((output, 1), (error, 2)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.dup2(descriptor, stream)
        os.close(descriptor)
    sys.argv = argv
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
