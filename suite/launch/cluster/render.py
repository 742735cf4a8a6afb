"""Templates that values cannot break out of: shell words quoted by default, YAML values as JSON, nothing undefined."""

import json
import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from suite.spec.base import UsageError
from suite.spec.catalogue import data_root

if TYPE_CHECKING:
    from jinja2 import Environment

_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_HALVES = re.compile("[\ud800-\udfff]")
#: What YAML refuses or folds inside quotes although JSON does not mind: controls, line separators, byte order marks.
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PLAIN = re.compile(r"[\w./:=,@%+-]*", re.ASCII)


class Raw(str):
    """Text that a template may print as it is: made by a filter, or one line of JSON in a here-document."""


def render_shell(template: str, **values: Any) -> str:
    """A shell script: what a template prints is one quoted word unless a filter made it. Raises as ``shell_word``."""
    return _environment("shell").get_template(template).render(**values)


def render_yaml(template: str, **values: Any) -> str:
    """A YAML document: what a template prints is JSON, of which YAML is a superset."""
    return _environment("yaml").get_template(template).render(**values)


def to_json(value: Any) -> Raw:
    """JSON on one line, which every YAML reader reads as the same value: characters beyond the first plane stay, of
    which JSON makes two escapes, and YAML two characters. Raises UsageError for half of one."""
    text = _JSON.encode(value)
    if _HALVES.search(text):
        raise UsageError(f"{ascii(text)[:200]} holds half a character, which no file can carry")
    return Raw(_NOT_YAML.sub(lambda match: f"\\u{ord(match.group()):04x}", text))


def shell_word(value: Any) -> Raw:
    """One word of a POSIX shell. Raises UsageError for a NUL, which no argument can hold."""
    text = str(value)
    if "\0" in text:
        raise UsageError(f"{text!r} holds a NUL character, which no command line can carry")
    return Raw(shlex.quote(text))


def directive_word(value: Any) -> Raw:
    """One word of an #SBATCH line, which sbatch reads and no shell: only between quotes a space or # is plain, and a
    line cannot go on in the next. Raises UsageError for control characters."""
    text = str(value)
    if not text.isprintable():
        raise UsageError(f"{text!r} holds a character that an #SBATCH line cannot carry")
    if _PLAIN.fullmatch(text):
        return Raw(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return Raw(f'"{escaped}"')


@lru_cache(maxsize=None)
def _environment(kind: str) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    quote = {"shell": shell_word, "yaml": to_json}[kind]
    environment = Environment(
        loader=FileSystemLoader(data_root()),
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Raw) else quote(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(json=to_json, directive=directive_word, raw=Raw)
    return environment
