"""What is never kept of an environment: secrets, by names of variables and by what values look like. Each pattern of
``suite/worker/redaction.json`` takes time as the text is long; its group is what is kept before the secret."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from suite.spec.base import worker_json

LEFT_OUT = "[left out]"
#: A longer text is cut at the last word before it, and then looked at.
_LONGEST_CHARACTERS = 1 << 16


def is_secret(name: str, value: str) -> bool:
    """Whether a variable's name speaks of a secret, or its value holds one."""
    names, values = _patterns()
    is_named = any(pattern.search(name) for pattern in names)
    return is_named or len(value) > _LONGEST_CHARACTERS or any(pattern.search(value) for pattern in values)


def without_secrets(text: str) -> str:
    """The text with each secret that it holds replaced: passwords in URLs, tokens in queries, headers, private keys."""
    if len(text) > _LONGEST_CHARACTERS:
        head, space, _ = text[:_LONGEST_CHARACTERS].rpartition(" ")
        text = f"{head}..." if space else LEFT_OUT
    for pattern in _patterns()[1]:
        text = pattern.sub(lambda match: f"{match.group(1)}{LEFT_OUT}", text)
    return text


def public_variables(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not is_secret(name, value)}


def without_secrets_in(value: Any) -> Any:
    """JSON-like facts with ``without_secrets`` done to every text."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {name: without_secrets_in(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets_in(inner) for inner in value]
    return value


@lru_cache(maxsize=1)
def _patterns() -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]]:
    declared = worker_json("redaction.json")
    names, values = ([re.compile(each) for each in declared[kind]] for kind in ("names", "values"))
    return names, values
