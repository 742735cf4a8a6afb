"""Options in a YAML file: a plan of `suite run`, or what a site says of its cluster."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, get_args, get_origin

from suite.spec import foreign
from suite.spec.base import UsageError
from suite.spec.names import nearest
from suite.spec.plain_yaml import load_plain

_MOST_BYTES = 256 * 1024
_MOST_DIGITS, _LONGEST_SHOWN, _LONGEST_NAME = 40, 80, 300


def words_of(path: Path, params: Collection[Any], given: Collection[str]) -> list[str]:
    """The options that a file holds by their names, as a command line has them.

    ``params``: those of the command; ``given``: names of those that the command line has, which replace the file's.
    Raises UsageError.
    """
    options = {param.opts[0].removeprefix("--"): param for param in params if param.param_type_name == "option"}
    words: list[str] = []
    for key, value in mapping(read_options(path, "a file of options"), str(path)).items():
        name = str(key).replace("_", "-")
        if name not in options:
            raise UsageError(f"{path} has no option {shown(key)}{nearest(name, options)}")
        option = options[name]
        if option.name in given:
            continue
        if getattr(option, "is_flag", False):
            is_on = option_value(f"{path}: {key}", value, bool)
            words += option.opts[:1] if is_on else option.secondary_opts[:1]
        else:
            found = option_value(f"{path}: {key}", value, list[str] if option.multiple else str)
            words += [f"--{name}={each}" for each in (found if isinstance(found, list) else [found])]
    return words


def option_value(where: str, value: Any, kind: Any) -> Any:
    """A value of the file as its option would have it, of the type ``kind``. Raises UsageError."""
    plain = kind if get_origin(kind) is list else next((one for one in get_args(kind) if one is not type(None)), kind)
    if get_origin(plain) is list:
        if isinstance(value, dict):
            return [f"{name}={text_of(f'{where}.{name}', each)}" for name, each in value.items()]
        entries = value if isinstance(value, list) else [value]
        return [text_of(where, each) for each in entries]
    if plain is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{where} is true or false, not {shown(value)}")
        return value
    if plain is int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{where} is a number from 1 on, not {shown(value)}")
        return value
    return text_of(where, value)


def text_of(where: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{where[:_LONGEST_NAME]} is a text, not {shown(value)}; put it in quotes if it is meant so")
    return str(value)


def mapping(value: Any, where: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} holds names with values, not {type(value).__name__}")
    return value


def read_options(path: Path, what: str) -> Any:
    """What the file holds; nothing where it is empty. ``what``: what it is. Raises UsageError."""
    try:
        found = load_plain(path, foreign.read_text(path, str(path), _MOST_BYTES, by_user=True), what)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    if _is_huge(found):
        raise UsageError(f"{path} holds a number of more than {_MOST_DIGITS} digits")
    return {} if found is None else found


def _is_huge(value: Any) -> bool:
    """Whether a number in it cannot even be shown."""
    if isinstance(value, dict):
        return any(map(_is_huge, value)) or any(map(_is_huge, value.values()))
    if isinstance(value, (list, tuple, set)):
        return any(map(_is_huge, value))
    return isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS


def shown(value: Any) -> str:
    return repr(value)[:_LONGEST_SHOWN]
