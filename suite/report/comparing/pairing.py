"""Which row of one side is compared with which of the other, and why the others are with none."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from suite.bundle.record import Record
from suite.report.comparing.model import Lack, Side, Unjudged
from suite.report.facts.entry import Entry
from suite.report.facts.machines import Hardware, hardware_of
from suite.report.facts.pool import Row, pool_rows
from suite.report.facts.suspect import takes_suspect
from suite.report.facts.variants import flattened
from suite.report.facts.work import done_otherwise, otherwise
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, few

#: Parts of a manifest that say which run it is or when it is given up, not what is measured and how.
_NO_SETTING = ("schema", "run", "hash", "work_hash", "note", "source", "limits", "stack", "stack_code", "environment")
#: What stands for all of a shape, a layout or an algorithm where the name, the label or the kind of work differs.
_SAID_BY = {"size": "size.name", "layout": "layout", "workload.algorithm": "work"}
_FAR = {"size.name": 8, "backend.name": 4}
_MOST_SETTINGS = 4
#: Rows without a partner whose nearest row is looked for; each is held against all of the other side.
MOST_NEAREST = 20
_LEAST_RUNS = 2
#: A setting's dotted name, and both values.
_Setting = tuple[str, str, str]


@dataclass(frozen=True)
class Measured:
    row: Row
    side: Side | None = None

    @property
    def name(self) -> str:
        ranks = counted(self.row.ranks, "rank")
        variant = f" ({self.row.variant})" if self.row.variant else ""
        return f"{self.row.backend} {self.row.size} {self.row.layout} on {ranks}{variant}"

    @property
    def records(self) -> list[Record]:
        """Those with a rate."""
        return [run.record for run in self.row.entries if run.record.throughput is not None]

    @cached_property
    def hardware(self) -> Hardware | None:
        known = (hardware_of(run.record) for run in self.row.entries)
        return next(filter(None, known), None)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """By their dotted names; of lists of lengths nothing, since workload and seed make them."""
        body = self.row.manifest.model_dump(mode="json", by_alias=True)
        body["work"] = {"samples": self.row.manifest.work.global_rollouts}
        named = {"layout": self.row.manifest.layout.label(), "work": self.row.work.text}
        return {**named, **dict(flattened(body, _NO_SETTING))}


@dataclass
class Pairs:
    """Rows of both sides by partner, and all that has none."""

    paired: list[tuple[Measured, Measured]]
    only: list[Measured]
    ambiguous: list[tuple[Sequence[Measured], Sequence[Measured]]]
    without_rate: list[Measured]


def measured_rows(entries: Sequence[Entry], with_suspect: bool = False, side: Side | None = None) -> list[Measured]:
    return [Measured(row, side) for row in pool_rows(entries, with_suspect)]


def pair(before: Sequence[Measured], after: Sequence[Measured]) -> Pairs:
    """Rows of equal backend, layout and work on equally many ranks; versions and machines may differ.

    Where a side has several such rows, those pair that are alike in how they were measured too, then in machine,
    launcher, image and stack. What is left on one side alone has no partner, what is left on both is ambiguous.
    """
    found = Pairs([], [], [], [one for one in (*before, *after) if not one.row.measured])
    measured = ([one for one in side if one.row.measured] for side in (before, after))
    for alike in _by_key(_work, *measured):
        left = [alike]
        for closer in (_measuring, _place, None):
            found.paired += [(first[0], second[0]) for first, second in left if len(first) == len(second) == 1]
            left = [sides for sides in left if not len(sides[0]) == len(sides[1]) == 1]
            before, after = ([one for sides in left for one in sides[place]] for place in (0, 1))
            left = _by_key(closer, before, after) if closer else []
        if before and after:
            found.ambiguous.append((before, after))
        else:
            found.only += [*before, *after]
    found.paired.sort(key=lambda pair: pair[1].row.number)
    return found


def _by_key(
    key: Callable[[Measured], Hashable], *sides: Sequence[Measured]
) -> list[tuple[list[Measured], list[Measured]]]:
    found: dict[Hashable, tuple[list[Measured], list[Measured]]] = defaultdict(lambda: ([], []))
    for place, rows in enumerate(sides):
        for one in rows:
            found[key(one)][place].append(one)
    return list(found.values())


def _work(one: Measured) -> tuple:
    """What must be equal for a ratio of rates to mean anything."""
    row, setting = one.row, one.row.setting
    done = done_otherwise(row)
    return (row.work_hash, row.lengths_hash, row.ranks, done, *_way(one), setting.device, setting.precision)


def _way(one: Measured) -> tuple:
    return (one.row.backend, one.row.layout, one.row.setting.track)


def _measuring(one: Measured) -> str:
    return one.row.manifest.measure.model_dump_json()


def _place(one: Measured) -> tuple:
    """As ``_measuring``, on the same kind of machine, in the same launch, with the same stack."""
    return (_measuring(one), one.hardware, one.row.launch, tuple(sorted(one.row.manifest.stack_identity.items())))


def lacking(pairs: Pairs) -> Iterator[Unjudged]:
    """Rows without partner, with what is nearest, unless the partner failed."""
    with_rate = [*(one for both in pairs.paired for one in both), *pairs.only]
    for side in ("before", "after"):
        others = [one for one in with_rate if one.side != side]
        lost = {_work(one) for one in pairs.without_rate if one.side != side}
        alone = [one for one in pairs.only if one.side == side and _work(one) not in lost]
        for place, one in enumerate(alone):
            near = nearest([one], others) if others and place < MOST_NEAREST else None
            detail = f"nearest is {near[1]}: {near[2]}" if near else ""
            yield Unjudged(lack="no partner", side=side, name=one.name, detail=detail)
    for rows in pairs.ambiguous:
        # rows of one side that no setting tells apart differ in the threads that their runs took
        ways = [
            [f"({one.row.variant or counted(one.row.setting.threads_per_rank, 'thread') + ' a rank'})" for one in side]
            for side in rows
        ]
        before, after = map(" and ".join, ways)
        detail = f"measured as {before} before, and as {after} after; name the bundles to compare"
        yield Unjudged(lack="ambiguous", side=None, name=rows[0][0].name, detail=detail)
    for one in pairs.without_rate:
        kinds = _kinds(one.row.entries)
        detail = f"{one.row.without_rate}, {counted(one.row.runs, 'run')}{f': {kinds}' if kinds else ''}"
        yield Unjudged(lack="failed", side=one.side, name=one.name, detail=detail)


def _kinds(runs: Sequence[Entry]) -> str:
    return ", ".join(sorted({run.record.failure.kind for run in runs if run.record.failure}))


def lacking_of(before: Measured, after: Measured, with_suspect: bool) -> Iterator[Unjudged]:
    """What keeps a row that has a partner from being judged, or from being taken as it is."""
    if same := copies(before, after):
        yield Unjudged(lack="copies", side=None, name=after.name, detail=same)
    for one in (before, after):
        details: dict[Lack, str] = {}
        if len(one.row.measured) < _LEAST_RUNS:
            details["one run"] = f"one run with a rate; at least {_LEAST_RUNS} a side tell the spread between runs"
        lost = [run for run in one.row.entries if run.record.status == "failed"]
        if lost:
            details["failed"] = f"{len(lost)} of {counted(one.row.runs, 'run')}: {_kinds(lost) or 'unknown'}"
        counts_all = with_suspect or any(takes_suspect(run.manifest) for run in one.row.entries)
        found = [run.record.validity for run in one.row.entries]
        doubted = [each for each in found if each and each.status not in ("valid", "suspect" * counts_all)]
        if doubted:
            reasons = "; ".join(dict.fromkeys(reason for each in doubted for reason in each.reasons))
            details["suspect"] = f"{len(doubted)} of {one.row.runs} runs: {reasons or 'no reason told'}"
        for lack, detail in details.items():
            yield Unjudged(lack=lack, side=one.side, name=one.name, detail=detail)


def copies(before: Measured, after: Measured) -> str | None:
    """What shows that runs of this pair are no repeats: no two last the same to the last digit. Null where nothing."""
    first, second = ([run.seconds for run in side.row.measured] for side in (before, after))
    if shared := len(set(first) & set(second)):
        return f"{counted(shared, 'run')} on both sides: equal seconds to the last digit"
    if twice := sum(len(runs) - len(set(runs)) for runs in (first, second)):
        return f"{counted(twice, 'run')} with the seconds of another to the last digit: copies, no repeats"
    if any(len(runs) > 1 and len({math.fsum(seconds) for seconds in runs}) == 1 for runs in (first, second)):
        return "all runs of a side last the same to the last digit: no spread, which no clock gives"
    return None


def nearest(before: Sequence[Measured], after: Sequence[Measured]) -> tuple[str, str, str]:
    """The rows of both that differ in the fewest settings, and in what: else in what they counted, or in how many ways
    they were measured. Another size or backend is further away than another setting."""
    found = [(differing_settings(one, other), one, other) for one in before for other in after]
    settings, one, other = min(found, key=lambda pair: sum(_FAR.get(name, 1) for name, _, _ in pair[0]))
    texts = few([f"{called(name)} {first} / {second}" for name, first, second in settings], _MOST_SETTINGS)
    what = ", ".join(texts) or "; ".join(otherwise(one.row, other.row))
    return one.name, other.name, what or "measured in more ways on one of the sides"


def differing_settings(one: Measured, other: Measured) -> list[_Setting]:
    """In which two rows differ; a shape or a layout with another name counts as one."""
    if one.row.manifest.hash == other.row.manifest.hash:
        return []
    first, second = one.settings, other.settings
    names = [name for name in dict.fromkeys([*first, *second]) if first.get(name) != second.get(name)]
    for part, named in _SAID_BY.items():
        if named in names:
            names = [name for name in names if name == named or not name.startswith(f"{part}.")]
    if all(name == "workload.name" for name in names if name.startswith("workload.")):
        names = [name for name in names if name != "workload.name"]
    return [(name, _short(first.get(name)), _short(second.get(name))) for name in names]


def _short(value: Any) -> str:
    return "-" if value is None else visible(str(value), 60)


def called(setting: str) -> str:
    """What a reader calls a setting: ``measure.iterations`` iterations, ``backend.name`` the backend."""
    part, _, name = setting.rpartition(".")
    return part if name == "name" else name
