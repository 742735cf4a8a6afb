"""Reading what a user typed into values, with one clear line when it cannot be read, and where output goes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from suite.spec.terminal import UsageError
from suite.spec.typed import MOST_RANKS, shown, whole
from suite.spec.typed import seconds as seconds

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
    counts = []
    for text in texts:
        if text != "all" and not text.isdecimal():
            raise UsageError(f"--ranks is a number or all, not {shown(text)}")
        counts.append(most if text == "all" else whole("--ranks", text, MOST_RANKS))
    return tuple(counts)


def checked(make: Callable[[], Any]) -> Any:
    """Build a model from what the user gave; a value it refuses becomes one line that names the field."""
    from pydantic import ValidationError

    try:
        return make()
    except ValidationError as error:
        # each option, or else field, with its value and what is wrong with it
        raise UsageError("; ".join(_reason(entry) for entry in error.errors(include_url=False))) from error


#: Characters of what is wrong with one field.
_LONGEST_MESSAGE = 1000
#: models in which the fields that options set lie
_INNER = frozenset(("layout", "limits", "measure", "stopping", "work", "workload"))


def _reason(entry: Any) -> str:
    from suite.cli.options.fields import option_of

    names = [str(step) for step in entry["loc"] if not isinstance(step, int) and step not in _INNER]
    message = entry["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if len(message) > _LONGEST_MESSAGE:  # an unknown tag is said in full
        message = f"{message[: _LONGEST_MESSAGE - 3]}..."
    given = entry.get("input")
    if not names or message.startswith("--"):
        return str(message)
    told = " ".join([option_of(names[0]), *names[1:]])
    return f"{told} {given!r}: {message}" if isinstance(given, (int, float, str)) else f"{told}: {message}"


def require_place(option: str, path: Path | None) -> None:
    """Raises UsageError, before anything is computed for it, for a file that could not be written."""
    if path is None or path.is_file():
        return
    if path.exists() or not path.parent.is_dir():
        why = "it is not a regular file" if path.exists() else f"there is no folder {path.parent}"
        raise UsageError(f"{option} {path} cannot be written: {why}")
