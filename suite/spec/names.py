"""Names: helping a user who misspelt one, or gave one twice, and which can be those of runs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from suite.spec.terminal import UsageError

T = TypeVar("T")

#: What a run's id, the name of its folder and its files, looks like.
SAFE_ID = re.compile(r"\w[\w.-]{0,199}")
#: of what anybody means to type
LONGEST_NAME = 200


def nearest(name: str, known: Iterable[str]) -> str:
    """``", did you mean 'a' or 'b'?"`` with the nearest known names, or an empty string when none is near."""
    if len(name) > LONGEST_NAME:
        return ""
    by_lower = {item.lower(): item for item in known}
    close = get_close_matches(name.lower(), by_lower, n=2, cutoff=0.5)
    return f", did you mean {' or '.join(repr(by_lower[item]) for item in close)}?" if close else ""


def repeated(names: Iterable[str]) -> str | None:
    """The first name that comes more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def finder(kind: str, known: Callable[[], Mapping[str, T]], help_text: str | None = None) -> Callable[[str], T]:
    """How one of these is found by its name, in any case; UsageError with the nearest names for any other name."""

    def find(name: str) -> T:
        for spelled, found in known().items():
            if spelled.lower() == name.strip().lower():
                return found
        also = help_text or f"known are {', '.join(known())}"
        raise UsageError(f"there is no {kind} {name[:80]!r}{nearest(name, known())}; {also}")

    return find
