"""What follows from a manifest alone is computed once for all of its repeats."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from suite.spec.manifest import Manifest

_MOST_KNOWN = 1024
_Make = TypeVar("_Make", bound=Callable[..., Any])


def once_per_manifest(make: _Make) -> _Make:
    """For a function of a manifest and of values that can be keys, which does not look at the manifest's ``run``.

    The hash of a manifest covers the rest. What is made must not be changed by whoever gets it.
    """
    known: dict[tuple, Any] = {}

    @wraps(make)
    def made(manifest: Manifest, *rest: Any, **named: Any) -> Any:
        key = (manifest.hash, *rest, *named.items())
        if key not in known:
            if len(known) >= _MOST_KNOWN:
                del known[next(iter(known))]
            known[key] = make(manifest, *rest, **named)
        return known[key]

    return cast(_Make, made)
