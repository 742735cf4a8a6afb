"""Runs whose figures may not be their own: which of them are pooled and compared, and what is said of the others; and
runs that did not succeed, so that nothing that was tried is left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.bundle.record import Failure, FailureKind, Record
from suite.report.facts.entry import Entry, grouped
from suite.report.formatting.numbers import counted
from suite.spec.manifest import Manifest

if TYPE_CHECKING:
    from suite.report.facts.pool import Row


#: Of two reasons they are left aside.
_FIGURES = str.maketrans("", "", "0123456789.")


def is_suspect(record: Record) -> bool:
    return record.validity is not None and record.validity.status == "suspect"


def is_invalid(record: Record) -> bool:
    return record.validity is not None and record.validity.status == "invalid"


def takes_suspect(manifest: Manifest) -> bool:
    """Whether the run was measured with ``--with-suspect``: then every view counts it, whatever disturbed it."""
    return manifest.run.stopping is not None and manifest.run.stopping.with_suspect


def pooled(records: Sequence[Record], with_suspect: bool) -> list[Record]:
    """Those that a row's figures are of: invalid ones never, suspect ones if asked for or if there are no others."""
    sound = [record for record in records if not is_invalid(record)]
    quiet = [record for record in sound if not is_suspect(record)]
    return sound if with_suspect else quiet or sound


def doubt_lines(rows: "Sequence[Row]") -> list[str]:
    """How many runs of which rows, and what became of them, then each reason with its rows."""
    kept = {True: "counted, as asked for", False: "left out"}
    became = grouped(
        (kept[row.holds_suspect] if row.is_ranked else "of rows that are therefore not ranked", row)
        for row in rows
        if row.doubts
    )
    lines = []
    for word, members in became.items():
        counts = ", ".join(f"{row.name} {row.runs_suspect + row.runs_invalid} of {row.runs}" for row in members)
        total = sum(row.runs_suspect + row.runs_invalid for row in members)
        lines.append(f"{counted(total, 'suspect or invalid run')} {word}: {counts}")
    first: dict[str, str] = {}
    told = ((first.setdefault(why.translate(_FIGURES), why), row.name) for row in rows for why in row.doubts)
    return lines + [f"{reason}: {', '.join(dict.fromkeys(names))}" for reason, names in grouped(told).items()]


@dataclass(frozen=True)
class FailureRow:
    """Runs of one row that ended alike: the same kind in the same phase with the same first line of evidence.
    ``failure``: of the first of them."""

    row: "Row"
    failure: Failure
    entries: list[Entry]


def failure_rows(rows: "Sequence[Row]") -> tuple[FailureRow, ...]:
    """In the order of the rows."""
    found: dict[tuple, FailureRow] = {}
    for row in rows:
        for entry in row.entries:
            if entry.record.status != "ok":
                kind: FailureKind = "interrupted" if entry.record.status == "interrupted" else "unknown"
                failure = entry.record.failure or Failure(kind=kind, phase=None, evidence=())
                alike = (row.number, failure.kind, failure.phase or "", failure.evidence[:1])
                found.setdefault(alike, FailureRow(row, failure, [])).entries.append(entry)
    return tuple(found[alike] for alike in sorted(found))
