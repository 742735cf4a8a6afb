"""Options that several commands share, as data classes whose fields are the options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast, get_args

from typer.models import OptionInfo


def takes_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the fields of each parameter that is a data class as options, in the place of that parameter."""
    groups = _groups(function)
    shown = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items()
        for option in (_options(groups[name]).values() if name in groups else (parameter,))
    ]

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        return function(**in_groups(function, given))

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def in_groups(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a function takes, from the values of its options."""
    left, made = dict(given), {}
    for name, group in _groups(function).items():
        made[name] = group(**{each.name: left.pop(each.name) for each in fields(group)})
    return {**left, **made}


def _groups(function: Callable[..., Any]) -> dict[str, type[Any]]:
    own = inspect.signature(function, eval_str=True).parameters
    return {name: cast("type[Any]", each.annotation) for name, each in own.items() if is_dataclass(each.annotation)}


def _options(group: type) -> dict[str, inspect.Parameter]:
    """The fields as parameters. An option without a heading of its own has its class's (``HEADING``) in help."""
    found = dict(inspect.signature(group, eval_str=True).parameters)
    for owner in reversed(group.__mro__):
        heading = vars(owner).get("HEADING")
        for name in inspect.get_annotations(owner) if heading else ():
            facts = get_args(found[name].annotation) if name in found else ()
            for option in (fact for fact in facts if isinstance(fact, OptionInfo)):
                option.rich_help_panel = option.rich_help_panel or heading
    return found
