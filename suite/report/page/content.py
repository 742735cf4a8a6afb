"""The report's blocks as what a page shows: headings, paragraphs, lists and listings, and tables as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suite.report.formatting.escape import plain, spans
from suite.report.formatting.grid import Table
from suite.report.text.markdown import anchor
from suite.report.text.section import Block, Bullets, Heading, Listing, Part, Pointers

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
