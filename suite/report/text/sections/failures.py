"""Runs that did not succeed, with their evidence and what to do next."""

from collections.abc import Iterator

from suite.report.facts.failures import FailureRow
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import code, inline
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN
from suite.report.text.section import Block, Section

_COLUMNS = tuple(
    Column(title, title in ("ranks", "runs"))
    for title in ("row", "size", "ranks", "backend", "runs", "kind", "phase", "evidence")
)


def _blocks(model: ReportModel) -> Iterator[Block]:
    by_number = {row.number: row for row in model.rows}
    cells = tuple(_cells(failure, by_number[failure.row]) for failure in model.failures)
    steps = {failure.kind: failure.next_step for failure in model.failures}
    if cells:
        yield Table(_COLUMNS, cells, tuple(f"{kind}: {steps[kind]}" for kind in sorted(steps)))


def _cells(failure: FailureRow, row: Row) -> tuple[str, ...]:
    evidence = code(failure.evidence) if failure.evidence else UNKNOWN
    more = f" + {failure.evidence_lines - 1} more" if failure.evidence_lines > 1 else ""
    return (
        *(row.name, inline(row.size), str(row.ranks), inline(row.backend), f"{len(failure.run_ids)} of {row.runs}"),
        *(failure.kind, inline(failure.phase) if failure.phase else UNKNOWN, evidence + more),
    )


SECTION = Section("Failures", _blocks)
