"""What follows from a manifest alone is computed once for all of its repeats."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from suite.spec.manifest import Manifest

_MOST_KNOWN = 1024
_Rest = ParamSpec("_Rest")
_Made = TypeVar("_Made")


def once_per_manifest(
    make: Callable[Concatenate[Manifest, _Rest], _Made],
) -> Callable[Concatenate[Manifest, _Rest], _Made]:
    """For a function of a manifest and of values that can be keys, which does not look at the manifest's ``run``.

    The hash of a manifest covers the rest. What is made must not be changed by whoever gets it.
    """
    known: dict[tuple, _Made] = {}

    @wraps(make)
    def made(manifest: Manifest, *rest: _Rest.args, **named: _Rest.kwargs) -> _Made:
        key = (manifest.hash, *rest, *named.items())
        if key not in known:
            if len(known) >= _MOST_KNOWN:
                del known[next(iter(known))]
            known[key] = make(manifest, *rest, **named)
        return known[key]

    return made
