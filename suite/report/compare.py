"""Two sides against each other: the same rows, before and after, here and there."""

from collections.abc import Sequence

from suite.report.comparing.judging import judge
from suite.report.comparing.model import FolderComparison, Unjudged
from suite.report.comparing.pairing import (
    Measured,
    lacking,
    lacking_of,
    look_alikes,
    measured_rows,
    nearest_pair,
    pair,
    what_differs,
)
from suite.report.comparing.surroundings import surroundings_of
from suite.report.facts.entry import Entry
from suite.spec.base import UsageError
from suite.stats.compare import DEFAULT_MARGIN
from suite.stats.multiple import LEVEL, NAME


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
        lacks += lacking_of(*both, with_suspect)
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
