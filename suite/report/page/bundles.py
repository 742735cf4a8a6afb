"""What the page has of single runs: where each bundle is, what was around it, and why it failed."""

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


def runs_of(rows: Sequence[Row], entries: Sequence[Entry]) -> dict[int, list[Entry]]:
    """Of each row, by its number. Runs of two folders may have one id, and be of two machines."""
    known = {(entry.record.run.id, entry.path): entry for entry in entries}
    return {row.number: [known[run] for run in zip(row.run_ids, row.paths, strict=True)] for row in rows}


def runs_table(model: ReportModel, entries: Sequence[Entry], page: Path, most: int | None = None) -> dict[str, Any]:
    """Every run, or the first ``most``, with its row, whether its figures are its own, and its evidence."""
    runs = runs_of(model.rows, entries)
    ordered = [(row, entry) for row in model.rows for entry in runs[row.number]][:most]
    rows = []
    for row, entry in ordered:
        record, validity = entry.record, entry.record.validity
        rows.append(
            (
                row.name,
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
        "links": {"column": 1, "hrefs": [href(entry.path, page) for _, entry in ordered]},
    }


def environments(rows: Sequence[Row], entries: Sequence[Entry]) -> tuple[list[dict[str, str]], dict[int, int]]:
    """Facts as `suite compare` reads them, each distinct set once, and by number of the row its place among these.

    What several runs of a row tell otherwise is joined by commas.
    """
    runs = runs_of(rows, entries)
    ids = image_ids([entry.record for entry in entries])
    places: dict[tuple[tuple[str, str], ...], int] = {}
    of_row = {}
    for row in rows:
        facts = facts_of([entry.record for entry in runs[row.number]], ids)
        shown = tuple((visible(name), visible(", ".join(values), 400)) for name, (_, values) in facts.items())
        of_row[row.number] = places.setdefault(shown, len(places))
    return [dict(shown) for shown in places], of_row


def evidence_of(model: ReportModel, entries: Sequence[Entry], page: Path) -> list[dict[str, Any]]:
    """Of each line of the failures' table, as far as somebody reads them."""
    known = {(entry.record.run.id, entry.path): entry for entry in entries}
    shown = model.failures[:_MOST_FAILURES]
    return [_evidence(failure, known[failure.run_ids[0], failure.paths[0]], page) for failure in shown]


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
