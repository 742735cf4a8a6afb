"""Which runs a report may be made of: what does not fit together is left out, or told beside its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.findings import FINDINGS, Finding
from suite.bundle.folder import Trace, folder_findings
from suite.bundle.store import Bundle
from suite.report.facts.entry import Entry

#: Bundles of which the same thing is told.
TOLD = 5


@dataclass(frozen=True)
class Checked:
    """A run as it was read, with what does not fit within its own bundle.

    ``difference``: of record.json from what its events give, in words; empty where there is none.
    """

    entry: Entry
    path: Path
    findings: tuple[Finding, ...]
    difference: str = ""


def trusted(
    checked: Sequence[Checked], bundles: Sequence[Bundle], paths: Iterable[Path]
) -> tuple[list[Entry], list[str]]:
    """The runs whose figures stand, and a caveat for what was found, a few for each finding.

    ``bundles``: all that were found below ``paths``.
    """
    traces = [Trace.of(one.path, one.entry.record, one.entry.digest) for one in checked]
    beside = folder_findings(traces, bundles, frozenset(paths))
    kept: list[Entry] = []
    changed = [
        f"{one.entry.path}: record.json is not what its events give, which are reported: {one.difference}"
        for one in checked
        if one.difference
    ]
    told: dict[str, list[str]] = {name: [] for name in FINDINGS}
    for one in checked:
        found = (*one.findings, *beside.get(one.path, ()))
        if not any(finding.leaves_out for finding in found):
            kept.append(one.entry)
        for finding in found:
            left_out = "left out, " if finding.leaves_out else ""
            told[finding.name].append(f"{one.entry.path}: {left_out}{finding.line()}")
    return kept, [
        *few(changed, "record.json is not what its events give"),
        *(line for name, lines in told.items() for line in few(lines, name)),
    ]


def few(lines: Sequence[str], what: str) -> list[str]:
    """As many lines as somebody reads, one for each bundle, and of how many more the same is true."""
    left = len(lines) - TOLD
    return list(lines) if left <= 0 else [*lines[:TOLD], f"and {left} more bundles: {what} (suite verify --json)"]
