"""Two sides against each other: the same rows, before and after, here and there; and what reading them found wrong."""

from collections.abc import Sequence
from dataclasses import replace

from suite.report.comparing import pairing
from suite.report.comparing.judging import judge
from suite.report.comparing.model import FolderComparison, Lack, Side, Unjudged
from suite.report.comparing.pairing import Measured
from suite.report.comparing.surroundings import surroundings_of
from suite.report.facts.entry import Entry
from suite.report.reading import ALTERED, RUNNING, VERSIONS, Caveat, Found, lines_of
from suite.spec.base import UsageError
from suite.stats.compare import DEFAULT_MARGIN
from suite.stats.multiple import LEVEL, NAME

#: By what reading tells of a bundle; other findings for which it was left out make it inconsistent.
_LACKS: dict[str, Lack] = {
    ALTERED: "altered",
    RUNNING: "running",
    "copied-run": "copies",
    "copied-seconds": "copies",
    "missing-repeat": "missing run",
}


def compare_entries(
    before: Sequence[Entry],
    after: Sequence[Entry],
    left_out: Sequence[Unjudged] = (),
    with_suspect: bool = False,
) -> FolderComparison:
    """Pair the rows of equal backend, layout and work on equally many ranks; versions and machines may differ.

    ``left_out``: what was found to be wrong when the sides were read. ``with_suspect``: runs that something disturbed
    count like the others. Raises UsageError when nothing pairs.
    """
    first, second = (pairing.measured_rows(each, with_suspect) for each in (before, after))
    pairs = pairing.pair(first, second)
    alike = pairing.look_alikes(pairs)
    other_work = {id(one): f"other work: {pairing.what_differs(*both)}" for both in alike for one in both}
    lacks = list(pairing.lacking(pairs, other_work))
    if not pairs.paired and not pairs.ambiguous:
        raise UsageError(f"the two sides share no row of equal backend, layout and work{_why(first, second, alike)}")
    for both in pairs.paired:
        lacks += pairing.lacking_of(*both, with_suspect)
    return FolderComparison(
        rows=judge(pairs.paired),
        surroundings=surroundings_of(pairs.paired),
        unjudged=(*lacks, *left_out),
        only_before=tuple(one.name for one in pairs.only["before"]),
        only_after=tuple(one.name for one in pairs.only["after"]),
        other_work=tuple(f"{before.name}: {pairing.what_differs(before, after)}" for before, after in alike),
        margin=DEFAULT_MARGIN,
        level=LEVEL,
        method=NAME,
    )


def _why(first: Sequence[Measured], second: Sequence[Measured], alike: Sequence[tuple[Measured, Measured]]) -> str:
    """What keeps the nearest rows of two sides apart."""
    if alike:
        before, after = alike[0]
        return f": {before.name}: {pairing.what_differs(before, after)}"
    before_rows, after_rows = ([one for one in side if one.row.measured] for side in (first, second))
    if not before_rows or not after_rows:
        return f": no run of the {'second' if before_rows else 'first'} side has a rate"
    return f"; {pairing.nearest_pair(before_rows, after_rows)}"


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
    sides: dict[Side, Found] = {"before": before, "after": after}
    found: list[Unjudged] = []
    for side, read in sides.items():
        for line in read.damaged:
            path, _, detail = line.partition(": ")
            found.append(Unjudged(lack="damaged", side=side, name=path, detail=detail))
        for one in read.caveats:
            lack = _lack_of(one)
            found += [Unjudged(lack=lack, side=side, name=one.path, detail=one.text)] if lack else []
    return tuple(found)


def notes(before: Found, after: Found) -> list[str]:
    """What else a reader must know, a line each; versions stand in the table of what differs."""
    others = [one for found in (before, after) for one in found.caveats if not _lack_of(one) and one.kind != VERSIONS]
    return list(dict.fromkeys(lines_of(others)))


def _lack_of(caveat: Caveat) -> Lack | None:
    return _LACKS.get(caveat.kind) or ("inconsistent" if caveat.leaves_out else None)
