"""What reading two sides found to be wrong with their bundles, as a comparison tells it."""

from collections.abc import Iterator
from dataclasses import replace

from suite.report.comparing.model import Lack, Side, Unjudged
from suite.report.reading import ALTERED, RUNNING, VERSIONS, Caveat, Found, lines_of
from suite.spec.base import UsageError

#: By what reading tells of a bundle; other findings for which it was left out make it inconsistent.
_LACKS: dict[str, Lack] = {
    ALTERED: "altered",
    RUNNING: "running",
    "copied-run": "copies",
    "copied-seconds": "copies",
    "missing-repeat": "missing run",
}


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
    paths = {entry.path for entry in after}
    known = [caveat for caveat in found.caveats if caveat.path in paths]
    rest = [caveat for caveat in found.caveats if caveat.path not in paths]
    return replace(found, entries=before, caveats=rest), replace(found, entries=after, damaged=[], caveats=known)


def left_out(before: Found, after: Found) -> tuple[Unjudged, ...]:
    """Every bundle that could not be read, is not finished, does not fit together, or whose record was changed."""
    return (*_left_out("before", before), *_left_out("after", after))


def notes(before: Found, after: Found) -> list[str]:
    """What else a reader must know, a line each; versions stand in the table of what differs."""
    others = [one for found in (before, after) for one in found.caveats if not _lack_of(one) and one.kind != VERSIONS]
    return list(dict.fromkeys(lines_of(others)))


def _left_out(side: Side, found: Found) -> Iterator[Unjudged]:
    for line in found.damaged:
        path, _, detail = line.partition(": ")
        yield Unjudged(lack="damaged", side=side, name=path, detail=detail)
    for caveat in found.caveats:
        lack = _lack_of(caveat)
        if lack:
            yield Unjudged(lack=lack, side=side, name=caveat.path, detail=caveat.text)


def _lack_of(caveat: Caveat) -> Lack | None:
    return _LACKS.get(caveat.kind) or ("inconsistent" if caveat.leaves_out else None)
