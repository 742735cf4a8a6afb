"""What the page shows, as data: the report's blocks, and the figures that its script draws, with the text that the
Markdown has.
"""

from collections.abc import Sequence
from typing import Any

from suite.report.charts import Chart, Curve, Line, Mark, Ratios
from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.pool import Row
from suite.report.formatting.escape import plain, spans, visible
from suite.report.formatting.grid import Table
from suite.report.text.markdown import anchor
from suite.report.text.section import Block, Bullets, Heading, Listing, Part, Pointers

#: What a row is filtered by, with what it is called; those that all rows share are not shown.
FACETS = {
    "size": "Size",
    "ranks": "Ranks",
    "backend": "Backend",
    "work": "Work",
    "kind": "Kind",
    "layout": "Layout",
    "precision": "Precision",
    "machine": "Machine",
    "scaling": "Scaling",
}


def row_data(row: Row, href: str, environment: int) -> dict[str, Any]:
    """``href``: of the bundle that stands for the row. ``environment``: its place among those of the page."""
    return {
        "n": row.number,
        "name": row.name,
        "size": visible(row.size),
        "ranks": row.ranks,
        "backend": visible(row.backend),
        "layout": visible(row.layout),
        "work": visible(f"{row.work.algorithm} on {row.work.family}"),
        "kind": row.setting.kind,
        "precision": row.setting.precision,
        "machine": row.setting.machine,
        "scaling": row.scaling,
        "variant": visible(row.variant),
        "track": row.setting.track,
        "runs": row.ok_runs,
        "doubts": _doubts(row),
        "href": href,
        "environment": environment,
    }


def _doubts(row: Row) -> list[str]:
    """In the words that the tables have: why a reader should look twice."""
    words = []
    if row.holds_suspect:
        words.append("suspect runs" if row.is_ranked else "all runs suspect, not ranked")
    if row.unsteady_runs:
        words.append("unsteady")
    if row.two_modes:
        words.append("two modes")
    if 0 < len(row.measured) < RUNS_TO_PUBLISH:
        words.append("too few runs to publish")
    return words


def chart_data(chart: Chart) -> dict[str, Any]:
    keys = {name: vars(key) for name, key in chart.keys.items()}
    return {**vars(chart), "keys": keys, "lines": _lines(chart.lines)}


def _lines(lines: Sequence[Line]) -> list[list[Any]]:
    """As ``rows.js`` reads them: of each its row, text and marks, these of key, value, bounds and text."""
    return [[line.row.number, line.text, list(map(_mark, line.marks))] for line in lines]


def _mark(mark: Mark) -> list[Any]:
    return [mark.key, mark.value, mark.low, mark.high, mark.text]


def ratio_data(one: Ratios) -> dict[str, Any]:
    parts = [[*_mark(mark), verdict] for mark, verdict in one.parts]
    return {"row": one.row.number, "best": one.best.number, "where": visible(one.where), "parts": parts}


def curve_data(curve: Curve) -> dict[str, Any]:
    known = {"kind": curve.kind, "base": curve.base.number, "label": visible(curve.label)}
    return {**known, "lines": _lines(curve.lines)}


Shown = dict[str, Any]


def of_part(part: Part, pictures: Sequence[str], tables: list[Shown]) -> Shown:
    """A part with its tables moved to ``tables``; a table's caption is the last line before it."""
    blocks: list[Shown] = []
    caption = part.heading
    for block in part.blocks:
        if isinstance(block, Table):
            blocks.append({"kind": "table", "place": len(tables)})
            tables.append({**as_data(block), "caption": caption, "part": part.heading})
            blocks += [of_block(Bullets(block.notes))] if block.notes else []
            continue
        if isinstance(block, (str, Heading)):
            text = block if isinstance(block, str) else block.text
            caption = f"{part.heading}: {plain(text).rstrip(':.')}"[:160]
        blocks.append(of_block(block))
    return {
        "heading": part.heading,
        "id": identity(part.heading),
        "blocks": blocks,
        "pictures": pictures,
        "is_closed": part.is_folded,
    }


def identity(heading: str) -> str:
    return f"part-{anchor(heading)}"


def of_block(block: Block) -> Shown:
    """For the page's template; a table as it is read at once, without the script."""
    if isinstance(block, str):
        return {"kind": "text", "spans": spans(block)}
    if isinstance(block, Heading):
        return {"kind": "heading", "spans": spans(block.text)}
    if isinstance(block, Bullets):
        return {"kind": "list", "items": [spans(line) for line in block.lines]}
    if isinstance(block, Listing):
        return {"kind": "listing", "text": "\n".join(block.lines)}
    if isinstance(block, Pointers):
        pieces = [(spans(text), identity(heading) if heading else "") for text, heading in block.pieces]
        return {"kind": "pointers", "start": block.start, "pieces": pieces}
    return {"kind": "grid", "columns": block.columns, "rows": [[spans(cell) for cell in row] for row in block.rows]}


def as_data(table: Table) -> Shown:
    """For the page's script. A cell that was left empty below a like one holds it again."""
    rows: list[list[str]] = []
    for cells in table.rows:
        above = rows[-1] if rows else cells
        rows.append([plain(cell) or before for cell, before in zip(cells, above, strict=True)])
    return {
        "titles": [plain(column.title) for column in table.columns],
        "rights": [column.right for column in table.columns],
        "rows": rows,
    }
