"""Runs whose figures may not be their own: which of them are pooled and compared, and what is said of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from suite.bundle.record import Record
from suite.report.facts.entry import Entry

if TYPE_CHECKING:
    from suite.report.facts.pool import Row


class Usable(NamedTuple):
    """Runs whose figures may be compared, and a line for each that was left out."""

    entries: list[Entry]
    left_out: list[str]


def usable(entries: Sequence[Entry], with_suspect: bool = False) -> Usable:
    """The runs without those that are invalid, and unless they are asked for without those that are suspect.

    A run of which nothing is known, as of an older bundle, stays.
    """
    kept, left_out = [], []
    for entry in entries:
        if is_invalid(entry.record) or (is_suspect(entry.record) and not with_suspect):
            assert entry.record.validity is not None, "nothing is known against a run without it"
            status, reasons = entry.record.validity.status, entry.record.validity.reasons
            left_out.append(f"{entry.path}: left out, because it is {status}: {'; '.join(reasons)}")
        else:
            kept.append(entry)
    return Usable(kept, left_out)


def is_suspect(record: Record) -> bool:
    return record.validity is not None and record.validity.status == "suspect"


def is_invalid(record: Record) -> bool:
    return record.validity is not None and record.validity.status == "invalid"


def pooled(records: Sequence[Record], with_suspect: bool) -> list[Record]:
    """Of the runs of one row those that its figures are made of: invalid ones never, suspect ones if they are asked
    for, or if there are no others."""
    sound = [record for record in records if not is_invalid(record)]
    quiet = [record for record in sound if not is_suspect(record)]
    return sound if with_suspect else quiet or sound


def doubts_of(records: Sequence[Record]) -> tuple[str, ...]:
    """What speaks against the runs of a row, each reason once, with the number of runs where there are several.

    Figures are left to the runs' own records: reasons that differ in them alone are one.
    """
    first: dict[str, str] = {}
    runs: Counter[str] = Counter()
    for record in records:
        reasons = record.validity.reasons if record.validity else ()
        for kind, reason in {_without_figures(reason): reason for reason in reasons}.items():
            first.setdefault(kind, reason)
            runs[kind] += 1
    return tuple(
        text if runs[kind] == 1 else f"{text} (like this in {runs[kind]} runs)" for kind, text in first.items()
    )


def doubt_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each row that has suspect or invalid runs: how many, what became of them, and why."""
    lines = []
    for row in rows:
        if not row.doubts:
            continue
        kinds = ((row.runs_suspect, "suspect"), (row.runs_invalid, "invalid"))
        how_many = " and ".join(f"{count} {kind}" for count, kind in kinds if count)
        became = "left out of its figures"
        if not row.is_ranked:
            became = "so it is not ranked"
        elif row.holds_suspect:
            became = "in its figures, as asked for"
        lines.append(
            f"{row.name}, {row.backend} {row.size}: {how_many} of {row.runs} runs, {became}: {'; '.join(row.doubts)}"
        )
    return lines


def _without_figures(reason: str) -> str:
    return "".join(letter for letter in reason if not (letter.isdigit() or letter == "."))
