"""Variables that hold a secret, as ``redaction.json`` declares names and values of them for driver and worker alike."""

import re

from suite.worker.manifest import declared

_NAMES, _VALUES = (list(map(re.compile, declared("redaction")[kind])) for kind in ("names", "values"))
#: A longer value is left out unread.
_LONGEST_CHARACTERS = 1 << 16


def is_secret(name: str, value: str) -> bool:
    """Whether a variable's name speaks of a secret, or its value holds one."""
    is_named = any(pattern.search(name) for pattern in _NAMES)
    return is_named or len(value) > _LONGEST_CHARACTERS or any(pattern.search(value) for pattern in _VALUES)
