"""Which runs a report may be made of: what does not fit together is left out, or told beside its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from suite.bundle.cache.survey import Surveyed
from suite.bundle.findings import FINDINGS, Finding
from suite.bundle.folder import Trace, folder_findings

#: Bundles of which the same thing is told.
TOLD = 5


_Entry = TypeVar("_Entry")


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
) -> tuple[list[Checked[_Entry]], list[str]]:
    """The runs whose figures stand, and a caveat for what was found, a few for each finding.

    ``bundles``: all that were found below ``paths``.
    """
    beside = folder_findings([one.trace for one in checked], [Path(each.path) for each in bundles], frozenset(paths))
    kept: list[Checked[_Entry]] = []
    changed = [
        f"{one.trace.path}: record.json is not what its events give, which are reported: {one.difference}"
        for one in checked
        if one.difference
    ]
    told: dict[str, list[str]] = {name: [] for name in FINDINGS}
    for one in checked:
        found = (*one.findings, *beside.get(one.trace.path, ()))
        if not any(finding.leaves_out for finding in found):
            kept.append(one)
        for finding in found:
            left_out = "left out, " if finding.leaves_out else ""
            told[finding.name].append(f"{one.trace.path}: {left_out}{finding.line()}")
    return kept, [
        *few(changed, "record.json is not what its events give"),
        *(line for name, lines in told.items() for line in few(lines, name)),
    ]


def few(lines: Sequence[str], what: str) -> list[str]:
    """As many lines as somebody reads, one for each bundle, and of how many more the same is true."""
    left = len(lines) - TOLD
    return list(lines) if left <= 0 else [*lines[:TOLD], f"and {left} more bundles: {what} (suite verify --json)"]
