"""What reports and comparisons show on a terminal."""

from __future__ import annotations

from rich import box
from rich.markup import escape
from rich.table import Table

from suite.report.compare import FolderComparison
from suite.report.facts.model import ReportModel
from suite.report.formatting.console import console
from suite.report.text.headline import rows as headline_rows
from suite.spec.base import printable
from suite.stats.compare import DEFAULT_MARGIN

HEADLINE_ROWS = 40
_EQUIVALENCE = {True: f", equal within {DEFAULT_MARGIN:.0%}", False: "", None: " (2 runs a side are needed)"}


def print_headline(model: ReportModel) -> None:
    """The report's headline table on the terminal."""
    rows = headline_rows(model)
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD)
    for name in rows[0]:
        table.add_column(name, justify="left" if name in ("size", "backend", "layout", "verdict") else "right")
    for row in rows[:HEADLINE_ROWS]:
        table.add_row(*(escape(str(value)) for value in row.values()))
    console().print(table)
    if len(rows) > HEADLINE_ROWS:
        print(f"and {len(rows) - HEADLINE_ROWS} more rows in the report")


def print_folder_comparison(result: FolderComparison) -> None:
    """Row by row the second side's rate over the first's."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("size", "ranks", "backend", "layout", "runs", "ratio [95 %]", "verdict"):
        table.add_column(name, justify="right" if name in ("ranks", "runs", "ratio [95 %]") else "left")
    for row in result.rows:
        bounds = "" if row.low is None or row.high is None else f" [{row.low:.3f}, {row.high:.3f}]"
        verdict = row.verdict + _EQUIVALENCE[row.equivalent]
        runs = f"{row.runs_before} / {row.runs_after}"
        cells = (row.size, str(row.ranks), row.backend, row.layout, runs, f"{row.ratio:.3f}{bounds}", verdict)
        table.add_row(*(escape(printable(cell)) for cell in cells))
    console().print(table)
    for side, names in (("first", result.only_before), ("second", result.only_after)):
        if names:
            print(printable(f"only on the {side} side: {', '.join(names)}"))
