"""What is not the same around the rows of a comparison, and so what kind of comparison it is."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from suite.bundle.record import Record
from suite.report.comparing.model import FactDifference, Surroundings
from suite.report.comparing.pairing import Measured, called, differing_settings
from suite.report.facts.environment import FactKind, FactOfBoth, facts_of_both, figures_apart
from suite.report.formatting.numbers import listed

#: What makes a comparison one across something, in the order in which a label has them.
_ACROSS: dict[FactKind, str] = {
    "machine": "machines",
    "version": "versions",
    "launch": "launchers",
    "setting": "settings",
    "state": "states of the machine",
}
_OTHER_HOST, _ALIKE = "on another host of the same kind", "like with like"


def surroundings_of(pairs: Sequence[tuple[Measured, Measured]]) -> Surroundings:
    """Over all pairs of rows. Facts that only one side tells are a difference too, for all that is known."""
    known: dict[str, None] = {}
    found: dict[FactOfBoth, list[str]] = defaultdict(list)
    for row, fact in _facts(pairs):
        known[fact[0]] = None
        if fact[2] != fact[3]:
            found[fact].append(row)
    same_code = {_is_same_code(*sides) for sides in pairs}
    order = [*_ACROSS, "host"]
    differences = [
        FactDifference(name=name, kind=kind, before=before, after=after, rows=tuple(rows))
        for (name, kind, before, after), rows in sorted(found.items(), key=lambda one: order.index(one[0][1]))
    ]
    differing = {one.name for one in differences}
    kinds = list(_kinds(differences))
    return Surroundings(
        label=f"across {listed(kinds)}" if kinds else _OTHER_HOST if differences else _ALIKE,
        equal=not differences,
        alike=tuple(name for name in known if name not in differing),
        differences=tuple(differences),
        same_stack=False if False in same_code else True if same_code == {True} else None,
    )


def _is_same_code(before: Measured, after: Measured) -> bool | None:
    """By versions, and by the code of the packages or the image that holds them; null where a side tells neither."""
    known = all(side.manifest.stack_code or side.runs.launch.image for side in (before, after))
    if not known and before.manifest.stack == after.manifest.stack:
        return None
    first, second = ((side.manifest.stack_identity, side.runs.launch.image) for side in (before, after))
    return first == second


def _facts(pairs: Sequence[tuple[Measured, Measured]]) -> Iterator[tuple[str, FactOfBoth]]:
    """With the names of their rows. Figures are of the machine, so of all rows on it together: those of a row are too
    few and too unlike each other to tell."""
    alike: dict[tuple, list[tuple[Measured, Measured]]] = defaultdict(list)
    for before, after in pairs:
        alike[before.hardware, after.hardware].append((before, after))
        for fact in facts_of_both(_records(before), _records(after)):
            yield after.name, fact
        for name, first, second in differing_settings(before, after):
            yield after.name, (called(name), "setting", (first,), (second,))
    for rows in alike.values():
        sides = ([record for pair in rows for record in _records(pair[side])] for side in (0, 1))
        for fact in figures_apart(*sides):
            yield from ((after.name, fact) for _, after in rows)


def _records(side: Measured) -> list[Record]:
    return [run.record for run in side.runs.entries if run.record.throughput is not None]


def _kinds(differences: Sequence[FactDifference]) -> Iterator[str]:
    """``machines``, ``versions``; seeds alone are no other settings."""
    for kind, name in _ACROSS.items():
        names = {one.name for one in differences if one.kind == kind}
        if names:
            yield "seeds" if names == {"seed"} else name
