"""Variables that hold a secret, as ``redaction.json`` declares names and values of them for driver and worker alike."""

import json
import os
import re

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "redaction.json")
with open(_FILE) as file:
    _DECLARED = json.load(file)
_NAMES = [re.compile(pattern) for pattern in _DECLARED["names"]]
_VALUES = [re.compile(pattern) for pattern in _DECLARED["values"]]
#: A longer value is left out unread.
_LONGEST_CHARACTERS = 1 << 16


def is_secret(name: str, value: str) -> bool:
    """Whether a variable's name speaks of a secret, or its value holds one."""
    if any(pattern.search(name) for pattern in _NAMES) or len(value) > _LONGEST_CHARACTERS:
        return True
    return any(pattern.search(value) for pattern in _VALUES)
