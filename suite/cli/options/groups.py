"""Options that several commands share, as data classes whose fields are the options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, cast, get_args

from typer.models import OptionInfo


def takes_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the fields of each parameter that is a data class as options, in the place of that parameter."""
    own = inspect.signature(function, eval_str=True).parameters
    groups = {
        name: cast(type, parameter.annotation) for name, parameter in own.items() if is_dataclass(parameter.annotation)
    }
    options = {name: _options(group) for name, group in groups.items()}
    shown = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.items()
        for option in (options[name].values() if name in options else (parameter,))
    ]

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        made = {name: groups[name](**{field: given.pop(field) for field in fields}) for name, fields in options.items()}
        return function(**given, **made)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


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
