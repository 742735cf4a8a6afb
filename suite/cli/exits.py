"""Exit codes, and how a command ends when something is wrong: one line on standard error, never a traceback."""

import errno
import functools
import inspect
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, TypeVar

import typer

from suite.cli.main import INTERRUPTED
from suite.cli.options.declare import flag, in_groups, parameters_of
from suite.cli.options.reading import check_numbers, print_json
from suite.spec.terminal import UsageError, detail, printable, tell

_LONGEST_LINE = 8000
Held = TypeVar("Held")
#: Of the command that is being run, what it gives back at its end.
_held: list[ExitStack] = []
ERROR_SCHEMA = "suite/error/1"
DONE, RUN_FAILED, BAD_USAGE, GATE_NOT_MET, UNDECIDED = range(5)


#: options of every command
_TELLING = {
    "quiet": flag("no notes, warnings and progress", "--quiet", "-q"),
    "verbose": flag("tell what is started, and why something failed", "--verbose", "-v"),
}


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """A command, with -q and -v, of a function that returns an exit code or raises what a user can cause."""

    @functools.wraps(function)
    def run(*, quiet: bool = False, verbose: bool = False, **kwargs: Any) -> None:
        signal.signal(signal.SIGTERM, _as_interrupt)
        tell("everything" if verbose else "errors" if quiet else "notes")
        as_json = bool(kwargs.get("as_json"))
        try:
            with ExitStack() as held:
                _held.append(held)
                held.callback(_held.pop)
                check_numbers(kwargs)
                code = function(**in_groups(function, kwargs)) or DONE
        except KeyboardInterrupt:
            code = complain("interrupted; what was measured is kept", INTERRUPTED, as_json)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            code = complain(_os_error_message(error), as_json=as_json)
        except _caused_by_the_user() as error:
            code = complain(str(error), as_json=as_json)
            if (cause := error.__cause__) is not None:
                detail(f"because of {type(cause).__name__}: {cause}")
        raise typer.Exit(code)

    shown = parameters_of(function, **_TELLING)
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    return run


def until_end(context: AbstractContextManager[Held]) -> Held:
    """Enter a context of the command that is being run, which ends with it."""
    return _held[-1].enter_context(context)


def complain(text: str, code: int = BAD_USAGE, as_json: bool = False) -> int:
    """Print one line on standard error, or also JSON to a program that asked for it; the exit code."""
    line = printable(text[:_LONGEST_LINE])
    # into a full disk, or a pipe that is closed: the exit code alone tells
    with suppress(OSError):
        if as_json:
            print_error(line, code)
    with suppress(OSError):
        print(f"error: {line}", file=sys.stderr, flush=True)
    return code


def print_error(line: str, code: int) -> None:
    """An error for a program that asked for JSON."""
    print_json({"schema": ERROR_SCHEMA, "error": line, "exit_code": code})


def _caused_by_the_user() -> tuple[type[Exception], ...]:
    """Asked for when something was raised: a command that is done well does not import them."""
    from suite.bundle.files import DamagedBundle

    return UsageError, DamagedBundle


def _os_error_message(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left{where}: free some and run the same command again; what was measured is kept"
    return f"{error.strerror or error}{where}"


def _as_interrupt(signum: int, frame: Any) -> None:
    raise KeyboardInterrupt
