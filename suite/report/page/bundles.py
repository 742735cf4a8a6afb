"""What the page has of single runs: where each bundle is, what was around it, and why it failed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from suite.report.facts.entry import Entry
from suite.report.facts.environment import facts_of
from suite.report.facts.failures import FailureRow
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.variants import image_ids
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import moment

_MOST_LINES, _MOST_FAILURES = 40, 100


def href(path: str, page: Path) -> str:
    """A bundle as a page links to it: relative, so that both can be moved together, and never of another scheme."""
    near = Path(os.path.relpath(path, page.parent)).as_posix()
    return f"{quote(os.fsencode(near if near.startswith('.') else f'./{near}'))}/"


def runs_table(model: ReportModel, entries: Sequence[Entry], page: Path, most: int | None = None) -> dict[str, Any]:
    """Every run, or the first ``most``, with its row, whether its figures are its own, and its evidence."""
    row_of = {run: row for row in model.rows for run in row.run_ids}
    ordered = sorted(entries, key=lambda entry: (row_of[entry.record.run.id].number, entry.record.run.id))[:most]
    rows = []
    for entry in ordered:
        record, validity = entry.record, entry.record.validity
        rows.append(
            (
                row_of[record.run.id].name,
                visible(record.run.id),
                moment(record.run.started),
                record.status,
                validity.status if validity else "-",
                visible("; ".join(validity.reasons), 400) if validity else "",
                (entry.digest or "-")[: len("sha256:") + 16],
            )
        )
    titles = ("row", "run", "started", "status", "validity", "reasons", "digest of the bundle")
    return {
        "titles": titles,
        "rights": [False] * len(titles),
        "rows": rows,
        "links": {"column": 1, "hrefs": [href(entry.path, page) for entry in ordered]},
    }


def environments(rows: Sequence[Row], entries: Sequence[Entry]) -> tuple[list[dict[str, str]], dict[int, int]]:
    """Facts as `suite compare` reads them, each distinct set once, and by number of the row its place among these.

    What several runs of a row tell otherwise is joined by commas.
    """
    by_id = {entry.record.run.id: entry.record for entry in entries}
    ids = image_ids([entry.record for entry in entries])
    places: dict[tuple[tuple[str, str], ...], int] = {}
    of_row = {}
    for row in rows:
        facts = facts_of([by_id[run] for run in row.run_ids if run in by_id], ids)
        shown = tuple((visible(name), visible(", ".join(values), 400)) for name, (_, values) in facts.items())
        of_row[row.number] = places.setdefault(shown, len(places))
    return [dict(shown) for shown in places], of_row


def evidence_of(model: ReportModel, entries: Sequence[Entry], page: Path) -> list[dict[str, Any]]:
    """Of each line of the failures' table, as far as somebody reads them."""
    by_id = {entry.record.run.id: entry for entry in entries}
    return [_evidence(failure, by_id[failure.run_ids[0]], page) for failure in model.failures[:_MOST_FAILURES]]


def _evidence(failure: FailureRow, first: Entry, page: Path) -> dict[str, Any]:
    known = first.record.failure.evidence if first.record.failure else ()
    bundles = zip(failure.run_ids, failure.paths, strict=True)
    return {
        "row": f"R{failure.row}",
        "kind": failure.kind,
        "lines": [visible(line, 1000) for line in known[:_MOST_LINES]],
        "left_out": max(0, len(known) - _MOST_LINES),
        "bundles": [(visible(run), href(path, page)) for run, path in bundles][:_MOST_LINES],
    }
