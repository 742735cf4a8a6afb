"""Two sides against each other: the same rows, before and after, here and there; and what reading them found wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from suite.report.comparing import pairing
from suite.report.comparing.judging import judge
from suite.report.comparing.model import FactDifference, FolderComparison, Lack, Side, Surroundings, Unjudged
from suite.report.comparing.pairing import Measured
from suite.report.facts.entry import Entry, grouped
from suite.report.facts.environment import FactKind, FactOfBoth, facts_of_both, figures_apart
from suite.report.formatting.numbers import listed
from suite.report.reading import ALTERED, DAMAGED, RUNNING, Caveat, Found, lines_of
from suite.spec.base import UsageError

#: By what reading tells of a bundle; other findings for which it was left out make it inconsistent.
_LACKS: dict[str, Lack] = {
    DAMAGED: "damaged",
    ALTERED: "altered",
    RUNNING: "running",
    "copied-run": "copies",
    "copied-seconds": "copies",
    "missing-repeat": "missing run",
}

#: What makes a comparison one across something, in the order in which a label has them.
_ACROSS: dict[FactKind, str] = {
    "machine": "machines",
    "version": "versions",
    "launch": "launchers",
    "setting": "settings",
    "state": "states of the machine",
}
_OTHER_HOST, _ALIKE = "on another host of the same kind", "like with like"


def compare_entries(
    before: Sequence[Entry], after: Sequence[Entry], left_out: Sequence[Unjudged] = (), with_suspect: bool = False
) -> FolderComparison:
    """Pair the rows of equal backend, layout and work on equally many ranks; versions and machines may differ.
    ``left_out``: what was found to be wrong when the sides were read. Raises UsageError when nothing pairs."""
    first = pairing.measured_rows(before, with_suspect, "before")
    second = pairing.measured_rows(after, with_suspect, "after")
    pairs = pairing.pair(first, second)
    lacks = list(pairing.lacking(pairs))
    if not pairs.paired and not pairs.ambiguous:
        raise UsageError(f"the two sides share no row of equal backend, layout and work{_why(first, second)}")
    for both in pairs.paired:
        lacks += pairing.lacking_of(*both, with_suspect)
    unjudged = (*lacks, *left_out)
    return FolderComparison(rows=judge(pairs.paired), surroundings=_surroundings_of(pairs.paired), unjudged=unjudged)


def _why(first: Sequence[Measured], second: Sequence[Measured]) -> str:
    before, after = ([one for one in side if one.row.measured] for side in (first, second))
    if not before or not after:
        return f": no run of the {'second' if before else 'first'} side has a rate"
    one, other, what = pairing.nearest(before[: pairing.MOST_NEAREST], after[: pairing.MOST_NEAREST])
    return f"; nearest are {one} and {other}: {what}"


def _surroundings_of(pairs: Sequence[tuple[Measured, Measured]]) -> Surroundings:
    """Over all pairs of rows. Facts that only one side tells are a difference too, for all that is known."""
    found = grouped((fact, row) for row, fact in _facts(pairs))
    same_code = {_is_same_code(*sides) for sides in pairs}
    order = [*_ACROSS, "host"]
    differences = [
        FactDifference(name=name, kind=kind, before=before, after=after, rows=tuple(rows))
        for (name, kind, before, after), rows in sorted(found.items(), key=lambda one: order.index(one[0][1]))
        if before != after
    ]
    differing = {one.name for one in differences}
    names = {kind: {one.name for one in differences if one.kind == kind} for kind in _ACROSS}
    kinds = ["seeds" if of_kind == {"seed"} else _ACROSS[kind] for kind, of_kind in names.items() if of_kind]
    return Surroundings(
        label=f"across {listed(kinds)}" if kinds else _OTHER_HOST if differences else _ALIKE,
        alike=tuple(name for name in dict.fromkeys(fact[0] for fact in found) if name not in differing),
        differences=tuple(differences),
        same_stack=False if False in same_code else True if same_code == {True} else None,
    )


def _is_same_code(before: Measured, after: Measured) -> bool | None:
    """By versions, and by the code of the packages or the image that holds them; null where a side tells neither."""
    known = all(side.row.manifest.stack_code or side.row.launch.image for side in (before, after))
    if not known and before.row.manifest.stack == after.row.manifest.stack:
        return None
    first, second = ((side.row.manifest.stack_identity, side.row.launch.image) for side in (before, after))
    return first == second


def _facts(pairs: Sequence[tuple[Measured, Measured]]) -> Iterator[tuple[str, FactOfBoth]]:
    """With the names of their rows; figures are of a machine, so of all rows on it: one row has too few to tell."""
    for before, after in pairs:
        for fact in facts_of_both(before.records, after.records):
            yield after.name, fact
        for name, first, second in pairing.differing_settings(before, after):
            yield after.name, (pairing.called(name), "setting", (first,), (second,))
    for rows in grouped(((before.hardware, after.hardware), (before, after)) for before, after in pairs).values():
        sides = ([record for pair in rows for record in pair[side].records] for side in (0, 1))
        for fact in figures_apart(*sides):
            yield from ((after.name, fact) for _, after in rows)


def by_environment(found: Found) -> tuple[Found, Found]:
    """The two environments of one results folder, that which was named first before the other. Raises UsageError where
    there are not two of them."""
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
    return replace(found, entries=before, caveats=rest), replace(found, entries=after, caveats=known)


def left_out(before: Found, after: Found) -> tuple[Unjudged, ...]:
    """Every bundle that could not be read, is not finished, does not fit together, or whose record was changed."""
    sides: dict[Side, Found] = {"before": before, "after": after}
    found: list[Unjudged] = []
    for side, read in sides.items():
        for one in read.caveats:
            lack = _lack_of(one)
            found += [Unjudged(lack=lack, side=side, name=one.path, detail=one.text)] if lack else []
    return tuple(found)


def notes(before: Found, after: Found) -> list[str]:
    """What else a reader must know, a line each."""
    others = [one for found in (before, after) for one in found.caveats if not _lack_of(one)]
    return list(dict.fromkeys(lines_of(others)))


def _lack_of(caveat: Caveat) -> Lack | None:
    return _LACKS.get(caveat.kind) or ("inconsistent" if caveat.leaves_out else None)
