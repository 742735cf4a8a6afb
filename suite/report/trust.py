"""Which runs a report may be made of: what does not fit together is left out, or told beside its figures."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Generic, TypeVar

from suite.bundle.cache.survey import Surveyed
from suite.bundle.findings import FINDINGS, Finding
from suite.bundle.folder import Trace, folder_findings

#: Bundles of which the same thing is said.
MOST_SHOWN = 5


_Entry = TypeVar("_Entry")


#: Kinds of what is told beside a finding's name.
RUNNING, ALTERED, VERSIONS, OTHER = "running", "record.json is not what its events give", "versions", ""


@dataclass(frozen=True)
class Caveat:
    """What a reader must know of how runs were read: of the bundle at ``path``, or, where that is empty, of several.

    ``kind``: the name of a finding, or one of those above. ``leaves_out``: the run is not among those that were read.
    """

    kind: str
    path: str
    text: str
    leaves_out: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


@dataclass(frozen=True)
class Checked(Generic[_Entry]):
    """A run as it was read, with what does not fit within its own bundle.

    ``difference``: of record.json from what its events give, in words; empty where there is none. ``version``: of the
    suite that drove it, as far as it tells.
    """

    entry: _Entry
    trace: Trace
    findings: tuple[Finding, ...]
    difference: str
    version: str | None


def trusted(
    checked: Sequence[Checked[_Entry]], bundles: Sequence[Surveyed], paths: Iterable[Path]
) -> tuple[list[Checked[_Entry]], list[Caveat]]:
    """The runs whose figures stand, and what was found, in the order of the findings' names.

    ``bundles``: all that were found below ``paths``.
    """
    beside = folder_findings([one.trace for one in checked], {each.path for each in bundles}, frozenset(paths))
    kept: list[Checked[_Entry]] = []
    changed = [
        Caveat(ALTERED, str(one.trace.path), f"{ALTERED}, which are reported: {one.difference}")
        for one in checked
        if one.difference
    ]
    known: dict[str, list[Caveat]] = {name: [] for name in FINDINGS}
    for one in checked:
        found = (*one.findings, *beside.get(one.trace.path, ()))
        if not any(finding.leaves_out for finding in found):
            kept.append(one)
        for finding in found:
            text = f"left out, {finding.line()}" if finding.leaves_out else finding.line()
            known[finding.name].append(Caveat(finding.name, str(one.trace.path), text, finding.leaves_out))
    return kept, [*changed, *(caveat for caveats in known.values() for caveat in caveats)]


def lines_of(caveats: Iterable[Caveat]) -> Iterator[str]:
    """A line each, a few of each kind."""
    for kind, alike in groupby(caveats, lambda caveat: caveat.kind):
        lines = [str(caveat) for caveat in alike]
        yield from few(lines, kind) if kind != OTHER else lines


def few(lines: Sequence[str], what: str) -> list[str]:
    """As many lines as somebody reads, one for each bundle, and of how many more the same is true."""
    left = len(lines) - MOST_SHOWN
    return list(lines) if left <= 0 else [*lines[:MOST_SHOWN], f"and {left} more bundles: {what} (suite verify --json)"]
