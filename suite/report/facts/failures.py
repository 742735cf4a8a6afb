"""Runs that did not succeed, as rows: nothing that was tried is left out of a report."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from suite.bundle.record import FailureKind
from suite.launch.outcome import NEXT_STEPS
from suite.report.facts.entry import Entry
from suite.report.facts.pool import Row


@dataclass(frozen=True)
class FailureRow:
    """Runs of one row that ended alike: the same kind in the same phase with the same first line of evidence."""

    row: int
    kind: FailureKind
    phase: str | None
    evidence: str | None
    evidence_lines: int
    next_step: str
    run_ids: tuple[str, ...]
    paths: tuple[str, ...]


def failure_rows(rows: Sequence[Row], groups: Sequence[Sequence[Entry]]) -> tuple[FailureRow, ...]:
    found: list[FailureRow] = []
    for row, entries in zip(rows, groups, strict=True):
        alike: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.record.status != "ok":
                kind, phase, evidence = _reported(entry)
                alike[kind, phase or "", evidence or ""].append(entry)
        found += [_row(row, alike[key]) for key in sorted(alike)]
    return tuple(found)


def _reported(entry: Entry) -> tuple[FailureKind, str | None, str | None]:
    failure = entry.record.failure
    if failure is None:
        return "interrupted" if entry.record.status == "interrupted" else "unknown", None, None
    return failure.kind, failure.phase, failure.evidence[0] if failure.evidence else None


def _row(row: Row, entries: Sequence[Entry]) -> FailureRow:
    kind, phase, evidence = _reported(entries[0])
    failure = entries[0].record.failure
    return FailureRow(
        row=row.number,
        kind=kind,
        phase=phase,
        evidence=evidence,
        evidence_lines=len(failure.evidence) if failure else 0,
        next_step=NEXT_STEPS[kind],
        run_ids=tuple(entry.record.run.id for entry in entries),
        paths=tuple(entry.path for entry in entries),
    )
