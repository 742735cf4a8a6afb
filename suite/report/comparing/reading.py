"""What reading two sides found to be wrong with their bundles, as a comparison tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from suite.report.comparing.model import Lack, Side, Unjudged
from suite.report.reading import Found
from suite.spec.base import UsageError

#: How ``suite.report.reading`` words what keeps a bundle from being taken as it is, the most telling words first.
_WORDED: tuple[tuple[re.Pattern[str], Lack], ...] = (
    (re.compile(r"record\.json is not what its events give"), "altered"),
    (re.compile(r"still being run"), "running"),
    (re.compile(r"left out, because it is the same run as|(left out, |bundles: )copied-(run|seconds)\b"), "copies"),
    (re.compile(r": missing-repeat\b"), "missing run"),
    (re.compile(r": left out, "), "inconsistent"),
)


def by_environment(found: Found) -> tuple[Found, Found]:
    """The two environments whose rows are in one results folder, that which was named first before the other.

    Raises UsageError where there are not two of them.
    """
    backends = {entry.manifest.backend.environment: entry.manifest.run.base for entry in found.entries}
    names = sorted(filter(None, backends), key=lambda name: (backends[name] is not None, name))
    if len(names) != 2 or len(backends) != 2 or backends[names[1]] != names[0]:
        held = f"runs of environments {', '.join(names)}" if names else "no runs of named environments"
        raise UsageError(
            f"one folder has two sides where suite run measured two environments (--python NAME=PATH, twice), and this "
            f"has {held}; else compare takes two sides: suite compare BEFORE AFTER"
        )
    before, after = ([one for one in found.entries if one.manifest.backend.environment == name] for name in names)
    paths = tuple(entry.path for entry in after)
    told = [line for line in found.caveats if line.startswith(paths)]
    rest = [line for line in found.caveats if line not in told]
    return replace(found, entries=before, caveats=rest), replace(found, entries=after, damaged=[], caveats=told)


def left_out(before: Found, after: Found) -> tuple[Unjudged, ...]:
    """Every bundle that could not be read, is not finished, does not fit together, or whose record was changed."""
    return (*_left_out("before", before), *_left_out("after", after))


def notes(before: Found, after: Found) -> list[str]:
    """What else a reader must know, a line each."""
    lines = [line for found in (before, after) for line in found.caveats if _lack_of(line) is None]
    # versions stand in the table of what differs
    return [line for line in dict.fromkeys(lines) if not line.startswith("runs of different versions")]


def _left_out(side: Side, found: Found) -> Iterator[Unjudged]:
    for line in found.damaged:
        yield _unjudged("damaged", side, line)
    for line in found.caveats:
        lack = _lack_of(line)
        if lack:
            yield _unjudged(lack, side, line)


def _lack_of(line: str) -> Lack | None:
    return next((lack for words, lack in _WORDED if words.search(line)), None)


def _unjudged(lack: Lack, side: Side, line: str) -> Unjudged:
    """``path: what is wrong``."""
    path, _, detail = line.partition(": ")
    return Unjudged(lack=lack, side=side, name=path, detail=detail)
