"""How a command, or a group of options that commands share, declares what it takes: ``size: str = option("...")``; and
what the shell offers as values, the names in the catalogues and runs that were submitted."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, dataclass_transform, get_type_hints

import typer

Options = TypeVar("Options")


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


@dataclass_transform(frozen_default=True)
def group(heading: str) -> Callable[[type[Options]], type[Options]]:
    """A class whose fields are options that commands share, under this heading of help unless they have their own."""

    def made(kind: type[Options]) -> type[Options]:
        kind.HEADING = heading  # type: ignore[attr-defined]
        return dataclass(frozen=True)(kind)

    return made


def _declared(default: Any, info: Any, is_named: bool = True) -> Any:
    return field(default=default, metadata={"typer": info, "is_named": is_named})


def parameters_of(function: Callable[..., Any], **more: Any) -> list[inspect.Parameter]:
    """As Typer reads them: in the place of a parameter that is a data class its fields. ``more``: further flags."""
    groups, found = _groups(function), []
    for name, own in inspect.signature(function, eval_str=True).parameters.items():
        found += _of_group(groups[name]) if name in groups else [_for_typer(name, own.annotation, own.default)]
    return found + [_for_typer(name, bool, declared) for name, declared in more.items()]


def in_groups(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a function takes, from the values of its options."""
    left, made = dict(given), {}
    for name, group in _groups(function).items():
        made[name] = group(**{each.name: left.pop(each.name) for each in fields(group)})
    return {**left, **made}


def _groups(function: Callable[..., Any]) -> dict[str, type[Any]]:
    own = inspect.signature(function, eval_str=True).parameters
    return {name: cast("type[Any]", each.annotation) for name, each in own.items() if is_dataclass(each.annotation)}


def _of_group(group: type[Any]) -> list[inspect.Parameter]:
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


def _names(module: str, table: str) -> Callable[[str], list[str]]:
    """Names of a table of the suite, which is imported when a shell asks."""

    def offered(incomplete: str) -> list[str]:
        known = getattr(import_module(f"suite.{module}"), table)
        return _starting(known() if callable(known) else known, incomplete)

    return offered


#: devices that `suite plan` knows
accelerators = _names("spec.catalogue", "devices")
#: what is offered for options of these names, in every command
_OFFERED = {
    "backend": _names("backends.registry", "backends"),
    "generation_device": accelerators,
    "ladder": _names("spec.catalogue", "ladders"),
    "launcher": _names("cli.options.launchers", "LAUNCHERS"),
    "preset": _names("spec.catalogue", "presets"),
    "size": _names("spec.catalogue", "sizes"),
    "workload": _names("spec.catalogue", "workloads"),
}


def words(*known: str) -> Callable[[str], list[str]]:
    """These, of an option that has no others."""
    return lambda incomplete: _starting(known, incomplete)


def submitted_runs(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of the runs that were submitted from the results folder of the same command line; no cluster is asked."""
    from suite.launch.cluster.submission import submitted_ids

    already = context.params.get("run") or ()
    names = submitted_ids(Path(context.params.get("runs") or "runs"))
    return [name for name in _starting(names, incomplete) if name not in already]


def runs_of_any_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of runs that have a bundle in the results folder of the same command line, or were submitted from it."""
    from suite.conduct.cluster.logs import known_runs

    return _starting(known_runs(Path(context.params.get("runs") or "runs")), incomplete)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that continue what was typed, in any case."""
    return [name for name in names if name.lower().startswith(incomplete.lower())]
