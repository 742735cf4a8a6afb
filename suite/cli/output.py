"""What a command prints, for people or for a program, and how it ends: exit codes, and one line for what is wrong."""

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from suite.spec.terminal import UsageError, is_quiet, printable, say, say_lines
from suite.spec.width import terminal_columns, wrapped

DONE, RUN_FAILED, BAD_USAGE, GATE_NOT_MET, UNDECIDED = range(5)
ERROR_SCHEMA = "suite/error/1"
STANDARD_OUTPUT = Path("-")
_LONGEST_LINE = 8000
_is_json = False


def ask_json(wanted: bool) -> None:
    """What ``is_json`` says from now on: a command with --json prints facts for a program."""
    global _is_json
    _is_json = wanted


def is_json() -> bool:
    return _is_json


def print_json(value: Any) -> None:
    """Facts for a program: indented, sorted keys, and no NaN."""
    json.dump(value, sys.stdout, indent=2, sort_keys=True, allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def answer(facts: Any, lines: Iterable[object] | Callable[[], None]) -> None:
    """What a command found, as JSON to a program that asked for it, else line by line, or by what prints them."""
    if _is_json:
        print_json(facts)
    elif callable(lines):
        lines()
    else:
        say_lines(lines)


def warn(start: str, line: str) -> None:
    """A line on standard error, broken at words where that is a terminal; with -q no note and no warning."""
    if not (is_quiet() and start in ("note: ", "warning: ")):
        say("\n".join(wrapped(line, terminal_columns(sys.stderr), start, "  ")), err=True)


def complain(text: str, code: int = BAD_USAGE) -> int:
    """Print one line on standard error, or also JSON to a program that asked for it; the exit code."""
    line = printable(text[:_LONGEST_LINE])
    # into a full disk, or a pipe that is closed: the exit code alone tells
    with suppress(OSError):
        if _is_json:
            print_error(line, code)
    with suppress(OSError):
        print(f"error: {line}", file=sys.stderr, flush=True)
    return code


def print_error(line: str, code: int) -> None:
    print_json({"schema": ERROR_SCHEMA, "error": line, "exit_code": code})


@contextmanager
def written_to(output: Path, suffix: str) -> Iterator[Path]:
    """``output``, or for ``-`` a file that is printed at the end. Raises UsageError where JSON is printed too."""
    if output != STANDARD_OUTPUT:
        yield output
        return
    from tempfile import TemporaryDirectory

    if _is_json:
        raise UsageError("--json and --output - are both printed: write one of them into a file")
    with TemporaryDirectory(prefix="suite-output-") as folder:
        path = Path(folder) / f"output{suffix}"
        yield path
        sys.stdout.flush()
        sys.stdout.buffer.write(path.read_bytes())


@contextmanager
def without_collector() -> Iterator[None]:
    """No search for reference cycles: thousands of bundles are millions of objects that live until the end anyway."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # what was read stays to the end of the process: no later search goes through it
        gc.enable()


def confirmed(question: str) -> bool:
    """Asked on a terminal; without one the answer is no. Ctrl-C is no answer, but an interrupt as any other."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(f"{question} [y/N]", err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def agreed(question: str, yes: bool) -> bool:
    """Whether to remove what was listed; JSON asks nobody. Raises UsageError where the answer was no."""
    if not yes and not _is_json and not confirmed(question):
        raise UsageError("nothing was removed; --yes removes without asking")
    return yes or not _is_json
