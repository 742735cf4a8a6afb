"""How a command declares what it takes (``size: str = option("...")``), what a shell is offered for it, and how it
ends: with what it found, or one line on standard error and never a traceback; and exit codes."""

import errno
import functools
import inspect
import json
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

import typer

from suite.cli.main import INTERRUPTED
from suite.spec.terminal import UsageError, detail, printable, say_lines, tell
from suite.spec.typed import MOST, first_beyond, shown

Options = TypeVar("Options")
_LONGEST_LINE = 8000
ERROR_SCHEMA = "suite/error/1"
DONE, RUN_FAILED, BAD_USAGE, GATE_NOT_MET, UNDECIDED = range(5)


def option(help: str, default: Any = None, *names: str, panel: str | None = None, **facts: Any) -> Any:
    """One with a value, called as its parameter or field unless it has ``names``. ``panel``: its heading in help;
    ``facts``: of `typer.Option`."""
    return _declared(default, typer.Option(*names, help=help, rich_help_panel=panel, **facts))


def flag(help: str, *names: str, panel: str | None = None) -> Any:
    """One that is off unless it is given, and has no opposite."""
    found = typer.Option(*names, help=help, rich_help_panel=panel)
    return _declared(False, found, is_named=bool(names))


def argument(help: str, default: Any = ..., **facts: Any) -> Any:
    """What stands without a name; without a default it has to be given."""
    return _declared(default, typer.Argument(help=help, **facts))


def _declared(default: Any, info: Any, is_named: bool = True) -> Any:
    return field(default=default, metadata={"typer": info, "is_named": is_named})


@dataclass_transform(frozen_default=True)
def group(heading: str) -> Callable[[type[Options]], type[Options]]:
    """A class whose fields are options that commands share, under this heading of help unless they have their own."""

    def made(kind: type[Options]) -> type[Options]:
        kind.HEADING = heading  # type: ignore[attr-defined]
        return dataclass(frozen=True)(kind)

    return made


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

    # as Typer reads them: in the place of a parameter that is a data class its fields
    params: list[inspect.Parameter] = []
    for name, own in inspect.signature(function, eval_str=True).parameters.items():
        is_group = is_dataclass(own.annotation)
        params += _of_group(own.annotation) if is_group else [_for_typer(name, own.annotation, own.default)]
    params += [_for_typer(name, bool, declared) for name, declared in _TELLING.items()]
    run.__signature__ = inspect.Signature(params)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in params}
    return run


def in_groups(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a function takes, from the values of its options."""
    made = dict(given)
    for name, own in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(own.annotation):
            values = {each.name: made.pop(each.name) for each in fields(own.annotation)}
            made[name] = own.annotation(**values)  # type: ignore[operator]
    return made


def _of_group(group: Any) -> list[inspect.Parameter]:
    """The fields. An option without a heading of its own has its class's (``HEADING``) in help."""
    kinds = get_type_hints(group, include_extras=True)
    owners = {name: owner for owner in reversed(group.__mro__) for name in inspect.get_annotations(owner)}
    return [
        _for_typer(
            each.name,
            kinds[each.name],
            each if "typer" in each.metadata else each.default,
            getattr(owners[each.name], "HEADING", None),
        )
        for each in fields(group)
    ]


def _for_typer(name: str, kind: Any, default: Any, heading: str | None = None) -> inspect.Parameter:
    """``default``: what was declared, or a plain value."""
    if isinstance(default, Field):
        info = default.metadata["typer"]
        info.rich_help_panel = info.rich_help_panel or heading
        if not default.metadata["is_named"]:
            info.param_decls = (f"--{name.replace('_', '-')}",)  # else it had an opposite
        info.autocompletion = info.autocompletion or _OFFERED.get(name)
        kind, default = Annotated[kind, info], default.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def check_numbers(given: Mapping[str, Any]) -> None:
    """Raises UsageError for a number among the options that is not finite or beyond any machine."""
    for name, value in given.items():
        for number in value if isinstance(value, (list, tuple)) else (value,):
            if first_beyond(number) is not None:
                raise UsageError(f"--{name.replace('_', '-')} is a number up to {MOST:,}, not {shown(str(number))}")


def print_json(value: Any) -> None:
    """Facts for a program: indented, sorted keys, and no NaN."""
    json.dump(value, sys.stdout, indent=2, sort_keys=True, allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def answer(as_json: bool, facts: Any, lines: Iterable[object]) -> None:
    """What a command found, as JSON to a program that asked for it, else line by line."""
    if as_json:
        print_json(facts)
    else:
        say_lines(lines)


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
    from suite.conduct.cluster.logs import submitted

    already = context.params.get("run") or ()
    return [name for name in submitted(Path(context.params.get("runs") or "runs")) if name not in already]


def runs_of_any_kind(context: typer.Context) -> list[str]:
    """Ids of runs that have a bundle in the results folder of the same command line, or were submitted from it."""
    from suite.conduct.cluster.logs import known_runs

    return known_runs(Path(context.params.get("runs") or "runs"))
