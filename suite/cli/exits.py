"""Exit codes, and how a command ends when something is wrong: one line on standard error, never a traceback."""

from __future__ import annotations

import errno
import functools
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import typer

from suite.cli.main import INTERRUPTED
from suite.cli.options.reading import check_numbers

_LONGEST_LINE = 8000
Held = TypeVar("Held")
#: Of the command that is being run, what it gives back at its end.
_held: list[ExitStack] = []
DONE, RUN_FAILED, BAD_USAGE, GATE_NOT_MET, UNDECIDED = range(5)


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Turn a function that returns an exit code, or raises what a user can cause, into a command."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        signal.signal(signal.SIGTERM, _as_interrupt)
        try:
            with ExitStack() as held:
                _held.append(held)
                held.callback(_held.pop)
                check_numbers(kwargs)
                code = function(*args, **kwargs) or DONE
        except KeyboardInterrupt:
            code = complain("interrupted; what was measured is kept", INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            code = complain(_os_error_message(error))
        except _caused_by_the_user() as error:
            code = complain(str(error))
        raise typer.Exit(code)

    return run


def until_end(context: AbstractContextManager[Held]) -> Held:
    """Enter a context of the command that is being run, which ends with it."""
    return _held[-1].enter_context(context)


def complain(text: str, code: int = BAD_USAGE) -> int:
    """Print one line on standard error and give back the exit code."""
    from suite.spec.base import printable

    print(f"error: {printable(text[:_LONGEST_LINE])}", file=sys.stderr)
    return code


def _caused_by_the_user() -> tuple[type[Exception], ...]:
    """Asked for when something was raised: a command that is done well does not import them."""
    from suite.bundle.files import DamagedBundle
    from suite.spec.base import UsageError

    return UsageError, DamagedBundle


def _os_error_message(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left{where}: free some and run the same command again; what was measured is kept"
    return f"{error.strerror or error}{where}"


def _as_interrupt(signum: int, frame: Any) -> None:
    raise KeyboardInterrupt
