"""How a command declares what it takes and is run, how what was typed is read, and what a shell is offered for it."""

import errno
import functools
import inspect
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform

import typer

from suite.cli.main import INTERRUPTED
from suite.cli.output import DONE, ask_json, complain
from suite.spec.terminal import UsageError, detail, tell
from suite.spec.typed import MOST, MOST_RANKS, first_beyond, shown, whole

Options = TypeVar("Options")
#: of a flag that is called as its parameter
_OWN_NAME = "--"


def option(help: str, default: Any = None, *names: str, panel: str | None = None, **facts: Any) -> Any:
    """One with a value, called as its parameter or field unless it has ``names``. ``panel``: its heading in help;
    ``facts``: of `typer.Option`."""
    return field(default=default, metadata={"typer": typer.Option(*names, help=help, rich_help_panel=panel, **facts)})


def flag(help: str, *names: str, panel: str | None = None) -> Any:
    """One that is off unless it is given, and has no opposite."""
    return option(help, False, *(names or [_OWN_NAME]), panel=panel)


def argument(help: str, default: Any = ..., **facts: Any) -> Any:
    """What stands without a name; without a default it has to be given."""
    return field(default=default, metadata={"typer": typer.Argument(help=help, **facts)})


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


@dataclass_transform(frozen_default=True)
def group(heading: str) -> Callable[[type[Options]], type[Options]]:
    """A class whose fields are options that commands share, under this heading of help unless they have their own."""

    def made(kind: type[Options]) -> type[Options]:
        for info in (each.metadata["typer"] for each in vars(kind).values() if isinstance(each, Field)):
            info.rich_help_panel = info.rich_help_panel or heading
        return dataclass(frozen=True)(kind)

    return made


#: options of every command
_TELLING = {
    "quiet": flag("no notes, warnings and progress", "--quiet", "-q"),
    "verbose": flag("tell what is started, and why something failed", "--verbose", "-v"),
}


def command(json_help: str | None = None) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """A command, with -q and -v, of a function that returns an exit code or raises what a user can cause; with --json
    where ``json_help`` says what that prints."""
    telling = _TELLING if json_help is None else {"as_json": flag(json_help, "--json"), **_TELLING}

    def made(function: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*, quiet: bool = False, verbose: bool = False, as_json: bool = False, **kwargs: Any) -> None:
            ask_json(as_json)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            tell("everything" if verbose else "errors" if quiet else "notes")
            try:
                check_numbers(kwargs)
                code = function(**in_groups(function, kwargs)) or DONE
            except KeyboardInterrupt:
                code = complain("interrupted; what was measured is kept", INTERRUPTED)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    raise
                code = complain(_os_error_message(error))
            except _caused_by_the_user() as error:
                code = complain(str(error))
                if (cause := error.__cause__) is not None:
                    detail(f"because of {type(cause).__name__}: {cause}")
            raise typer.Exit(code)

        # as Typer reads them: in the place of a parameter that is a data class its fields
        params: list[inspect.Parameter] = []
        for name, own in inspect.signature(function, eval_str=True).parameters.items():
            if is_dataclass(own.annotation):
                each_of = fields(own.annotation)
                params += [_for_typer(one.name, one.type, one if one.metadata else one.default) for one in each_of]
            else:
                params.append(_for_typer(name, own.annotation, own.default))
        params += [_for_typer(name, bool, declared) for name, declared in telling.items()]
        run.__signature__ = inspect.Signature(params)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in params}
        return run

    return made


def in_groups(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a function takes, from the values of its options."""
    made = dict(given)
    for name, own in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(own.annotation):
            values = {each.name: made.pop(each.name) for each in fields(own.annotation)}
            made[name] = own.annotation(**values)  # type: ignore[operator]
    return made


def _for_typer(name: str, kind: Any, default: Any) -> inspect.Parameter:
    """``default``: what was declared, or a plain value."""
    if isinstance(default, Field):
        info = default.metadata["typer"]
        if info.default == _OWN_NAME:  # Typer's place of the first name; without any it had an opposite
            info.default = f"--{name.replace('_', '-')}"
        info.autocompletion = info.autocompletion or _OFFERED.get(name)
        kind, default = Annotated[kind, info], default.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def check_numbers(given: Mapping[str, Any]) -> None:
    """Raises UsageError for a number among the options that is not finite or beyond any machine."""
    for name, value in given.items():
        for number in value if isinstance(value, (list, tuple)) else (value,):
            if first_beyond(number) is not None:
                raise UsageError(f"--{name.replace('_', '-')} is a number up to {MOST:,}, not {shown(str(number))}")


def rank_counts(texts: Sequence[str], most: int) -> tuple[int, ...]:
    """Numbers of ranks as typed, ``all`` being as many ``most`` allows. Raises UsageError for other words."""
    return tuple(most if text == "all" else whole("--ranks, unless all,", text, MOST_RANKS) for text in texts)


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
    # cut, as an unknown tag is said in full
    message = entry["msg"].removeprefix("Value error, ").replace("Input should be", "must be")[:_LONGEST_MESSAGE]
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


def _caused_by_the_user() -> tuple[type[Exception], ...]:
    """Asked for when something was raised: a command that is done well does not import them."""
    from suite.bundle.files import DamagedBundle

    return UsageError, DamagedBundle


def _os_error_message(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left{where}: free some and run the same command again; what was measured is kept"
    return f"{error.strerror or error}{where}"


def offered(module: str, table: str) -> Callable[[], list[str]]:
    """Names of a table of the suite, which is imported when a shell asks; Typer leaves out what was not typed so."""

    def names() -> list[str]:
        known = getattr(import_module(f"suite.{module}"), table)
        return list(known() if callable(known) else known)

    return names


#: what is offered for options of these names, in every command
_OFFERED = {
    "backend": offered("backends.registry", "backends"),
    "generation_device": offered("spec.catalogue", "devices"),
    "ladder": offered("spec.catalogue", "ladders"),
    "launcher": offered("cli.options.launchers", "LAUNCHERS"),
    "preset": offered("spec.catalogue", "presets"),
    "size": offered("spec.catalogue", "sizes"),
    "workload": offered("spec.catalogue", "workloads"),
}


def submitted_runs(context: typer.Context) -> list[str]:
    """Ids of the runs that were submitted from the results folder of the same command line; no cluster is asked."""
    from suite.launch.cluster.submission import submitted_ids

    already = context.params.get("run") or ()
    return [name for name in submitted_ids(Path(context.params.get("runs") or "runs")) if name not in already]


def runs_of_any_kind(context: typer.Context) -> list[str]:
    """Ids of runs that have a bundle in the results folder of the same command line, or were submitted from it."""
    from suite.conduct.cluster.logs import known_runs

    return known_runs(Path(context.params.get("runs") or "runs"))
