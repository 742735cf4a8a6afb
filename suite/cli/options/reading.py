"""Reading what a user typed into values, with one clear line when it cannot be read."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.spec.bounds import MOST, MOST_RANKS, first_beyond
from suite.spec.typed import seconds as seconds
from suite.spec.typed import shown, whole

if TYPE_CHECKING:
    from pydantic import ValidationError

#: `--python` of every command that starts a stack or asks one; an image sets the variable to its own stack
Python = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]PATH",
        help="Python interpreter that has the training stack, of all backends or of the one or the environment named "
        "(repeat for several) [env var: SUITE_PYTHON] [default: this one, or .venv-NAME beside its .venv]",
        rich_help_panel="Where it runs",
    ),
]


def rank_counts(texts: Sequence[str], most: int) -> tuple[int, ...]:
    """Numbers of ranks as typed, ``all`` being as many ``most`` allows. Raises UsageError for other words."""
    from suite.spec.base import UsageError

    counts = []
    for text in texts:
        if text != "all" and not text.isdecimal():
            raise UsageError(f"--ranks is a number or all, not {shown(text)}")
        if text == "0":
            raise UsageError("--ranks is at least 1, not 0")
        counts.append(most if text == "all" else whole("--ranks", text, MOST_RANKS))
    return tuple(counts)


def check_numbers(given: Mapping[str, Any]) -> None:
    """What no numeric option of any command takes, so that nothing overflows behind it. ``given``: options by the names
    of their parameters. Raises UsageError for what is not finite or beyond any machine.
    """
    for name, value in given.items():
        for number in value if isinstance(value, (list, tuple)) else (value,):
            if first_beyond(number) is not None:
                from suite.spec.base import UsageError

                raise UsageError(f"--{name.replace('_', '-')} is a number up to {MOST:,}, not {shown(str(number))}")


def checked(make: Callable[[], Any]) -> Any:
    """Build a model from what the user gave; a value it refuses becomes one line that names the field."""
    from pydantic import ValidationError

    from suite.spec.base import UsageError

    try:
        return make()
    except ValidationError as error:
        raise UsageError(validation_message(error)) from error


#: Characters of what is wrong with one field.
_LONGEST_MESSAGE = 1000
#: models in which the fields that options set lie
_INNER = frozenset(("layout", "limits", "measure", "stopping", "work", "workload"))


def validation_message(error: ValidationError) -> str:
    """A validation error in one line: each option, or else field, with its value and what is wrong with it."""
    return "; ".join(_reason(entry) for entry in error.errors(include_url=False))


def _reason(entry: Any) -> str:
    from suite.cli.options.fields import option_of

    names = [str(step) for step in entry["loc"] if not isinstance(step, int) and step not in _INNER]
    message = entry["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if len(message) > _LONGEST_MESSAGE:  # an unknown tag is said in full
        message = f"{message[: _LONGEST_MESSAGE - 3]}..."
    given = entry.get("input")
    if not names:
        return str(message)
    told = " ".join([option_of(names[0]), *names[1:]])
    return f"{told} {given!r}: {message}" if isinstance(given, (int, float, str)) else f"{told}: {message}"


@contextmanager
def without_collector() -> Iterator[None]:
    """No search for reference cycles: thousands of bundles are millions of objects that live until the end anyway."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def print_json(value: Any) -> None:
    """Facts for a program: indented, sorted keys, and no NaN."""
    import json

    json.dump(value, sys.stdout, indent=2, sort_keys=True, allow_nan=False)
    sys.stdout.write("\n")
