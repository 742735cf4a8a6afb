"""Two sides against each other: the same rows, before and after, here and there."""

from collections import Counter
from collections.abc import Iterator, Sequence

from suite.report.comparing.judging import copies, judge
from suite.report.comparing.model import FolderComparison, Side, Unjudged
from suite.report.comparing.pairing import (
    Measured,
    lacking,
    look_alikes,
    measured_rows,
    nearest_pair,
    pair,
    partly_failed,
    what_differs,
)
from suite.report.comparing.surroundings import surroundings_of
from suite.report.facts.entry import Entry
from suite.report.facts.suspect import takes_suspect
from suite.spec.base import UsageError
from suite.stats.compare import DEFAULT_MARGIN
from suite.stats.multiple import LEVEL, NAME

_LEAST_RUNS = 2


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
    first, second = (measured_rows(each, with_suspect) for each in (before, after))
    pairs = pair(first, second)
    alike = look_alikes(pairs)
    other_work = {id(one): f"other work: {what_differs(*both)}" for both in alike for one in both}
    lacks = list(lacking(pairs, other_work))
    if not pairs.paired and not pairs.ambiguous:
        raise UsageError(f"the two sides share no row of equal backend, layout and work{_why(first, second, alike)}")
    for both in pairs.paired:
        lacks += _lacks(*both, with_suspect)
    return FolderComparison(
        rows=judge(pairs.paired),
        surroundings=surroundings_of(pairs.paired),
        unjudged=(*lacks, *left_out),
        only_before=tuple(one.name for one in pairs.only["before"]),
        only_after=tuple(one.name for one in pairs.only["after"]),
        other_work=tuple(f"{before.name}: {what_differs(before, after)}" for before, after in alike),
        margin=DEFAULT_MARGIN,
        level=LEVEL,
        method=NAME,
    )


def _why(first: Sequence[Measured], second: Sequence[Measured], alike: Sequence[tuple[Measured, Measured]]) -> str:
    """What keeps the nearest rows of two sides apart."""
    if alike:
        before, after = alike[0]
        return f": {before.name}: {what_differs(before, after)}"
    before_rows, after_rows = ([one for one in side if one.row.measured] for side in (first, second))
    for rows, side in ((before_rows, "first"), (after_rows, "second")):
        if not rows:
            return f": no run of the {side} side has a rate"
    return f"; {nearest_pair(before_rows, after_rows)}"


def _lacks(before: Measured, after: Measured, with_suspect: bool) -> Iterator[Unjudged]:
    """What keeps a row that has a partner from being judged, or from being taken as it is."""
    same = copies(before, after)
    if same:
        yield Unjudged(lack="copies", side=None, name=after.name, detail=same)
    sides: tuple[tuple[Side, Measured], ...] = (("before", before), ("after", after))
    for side, one in sides:
        if len(one.row.measured) < _LEAST_RUNS:
            detail = "one run with a rate; at least 2 a side tell the spread between runs"
            yield Unjudged(lack="one run", side=side, name=one.name, detail=detail)
        yield from partly_failed(side, one)
        yield from _suspect(side, one, with_suspect)


def _suspect(side: Side, one: Measured, with_suspect: bool) -> Iterator[Unjudged]:
    """Runs that their own record doubts, with the reasons; records of older bundles judge nothing."""
    counts_all = with_suspect or any(takes_suspect(run.manifest) for run in one.runs.entries)
    sound = ("valid", "suspect") if counts_all else ("valid",)
    found = [run.record.validity for run in one.runs.entries]
    doubted = [each for each in found if each is not None and each.status not in sound]
    if doubted:
        reasons = Counter(reason for each in doubted for reason in each.reasons)
        detail = f"{len(doubted)} of {one.row.runs} runs: {'; '.join(reasons) or 'no reason told'}"
        yield Unjudged(lack="suspect", side=side, name=one.name, detail=detail)
