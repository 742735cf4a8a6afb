"""Which runs a report may be made of: what does not fit together is left out, or told beside its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.findings import FINDINGS, Finding
from suite.bundle.folder import Trace, folder_findings
from suite.bundle.store import Bundle
from suite.report.facts.entry import Entry

#: Bundles that are told of one finding.
_TOLD = 5


@dataclass(frozen=True)
class Checked:
    """A run as it was read, with what does not fit within its own bundle."""

    entry: Entry
    findings: tuple[Finding, ...]


def trusted(
    checked: Sequence[Checked], bundles: Sequence[Bundle], paths: Iterable[Path]
) -> tuple[list[Entry], list[str]]:
    """The runs whose figures stand, and a caveat for what was found, a few for each finding.

    ``bundles``: all that were found below ``paths``.
    """
    traces = [Trace.of(Path(one.entry.path), one.entry.record, one.entry.digest) for one in checked]
    beside = folder_findings(traces, bundles, frozenset(paths))
    kept: list[Entry] = []
    told: dict[str, list[str]] = {name: [] for name in FINDINGS}
    for one in checked:
        found = (*one.findings, *beside.get(Path(one.entry.path), ()))
        if not any(finding.leaves_out for finding in found):
            kept.append(one.entry)
        for finding in found:
            left_out = "left out, " if finding.leaves_out else ""
            told[finding.name].append(f"{one.entry.path}: {left_out}{finding.line()}")
    return kept, [line for lines in told.values() for line in _few(lines)]


def _few(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_TOLD]
    if len(lines) > _TOLD:
        name = lines[0].split(": ", 1)[1].split(":", 1)[0]
        yield f"and {len(lines) - _TOLD} more bundles: {name} (suite verify --json has them)"
