"""Options in files, as words of a command line: a plan of `suite run`, a folder's defaults, a cluster's site."""

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from suite.spec import foreign
from suite.spec.base import UsageError
from suite.spec.names import nearest
from suite.spec.plain_yaml import load_plain

_MOST_BYTES = 256 * 1024
_LONGEST_SHOWN, _LONGEST_NAME = 80, 300


def words_of(where: str, values: Any, params: Iterable[Any], left_out: Container[str]) -> list[str]:
    """Options of a command by name as a command line has them, without those ``left_out``. Raises UsageError."""
    options = {param.opts[0].removeprefix("--"): param for param in params if param.param_type_name == "option"}
    words: list[str] = []
    for key, value in mapping(values, where).items():
        name = str(key).replace("_", "-")
        if name not in options:
            raise UsageError(f"{where} has no option {shown(key)}{nearest(name, options)}")
        option = options[name]
        if option.name in left_out:
            continue
        if getattr(option, "is_flag", False):
            if not isinstance(value, bool):
                raise UsageError(f"{where}: {key} is true or false, not {shown(value)}")
            words += option.opts[:1] if value else option.secondary_opts[:1]
        else:
            words += [f"--{name}={text}" for text in _texts(f"{where}: {key}", value, option)]
    return words


def _texts(where: str, value: Any, option: Any) -> list[str]:
    """What is typed for an option; of one that may be repeated each entry."""
    if option.multiple and isinstance(value, dict):
        return [f"{name}={text_of(f'{where}.{name}', each)}" for name, each in value.items()]
    if option.type_descriptor.annotation is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"{where} is a whole number, not {shown(value)}")
    return [text_of(where, each) for each in (value if option.multiple and isinstance(value, list) else [value])]


def default_words(
    path: Path, commands: Mapping[str, Any], command: Iterable[str], params: Iterable[Any], given: Container[str]
) -> list[str]:
    """The same of the table of a command in a file of defaults. Raises UsageError."""
    import tomllib

    text = foreign.read_text(path, str(path), _MOST_BYTES, by_user=True).removeprefix("\ufeff")
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    known: Any = commands
    for word in command:
        for name in tables:
            if name not in known:
                raise UsageError(f"{path} is of no command {shown(name)}{nearest(name, known)}")
        tables = mapping(tables.get(word, {}), f"{path}: {word}")
        known = getattr(known[word], "commands", ())
    return words_of(f"{path}: {'.'.join(command)}", tables, params, given)


def text_of(where: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{where[:_LONGEST_NAME]} is a text, not {shown(value)}; put it in quotes if it is meant so")
    text = str(value)
    if "\0" in text or text != text.encode(errors="replace").decode():
        raise UsageError(f"{where[:_LONGEST_NAME]} holds a character that no command line can carry: {shown(value)}")
    return text


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
    return {} if found is None else found


def shown(value: Any) -> str:
    return repr(value)[:_LONGEST_SHOWN]
