"""What the page shows, as data: the report's blocks, and the figures that its script draws, with the text that the
Markdown has.
"""

from collections.abc import Sequence
from typing import Any

from suite.report.charts import Chart
from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.ranking import Group, RankedRow
from suite.report.facts.scaling import Curve
from suite.report.formatting.escape import plain, spans, visible
from suite.report.formatting.grid import Table
from suite.report.formatting.numbers import counted, interval
from suite.report.text.markdown import anchor
from suite.report.text.section import Block, Bullets, Heading, Listing, Part, Pointers
from suite.stats.intervals import Interval

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
    """As ``lines.js`` reads it: lines are lists of row, text and marks, these of key, value, bounds and text."""
    return {
        "name": chart.name,
        "title": chart.title,
        "unit": chart.unit,
        "right": chart.right,
        "limit": chart.limit,
        "keys": {name: {"text": key.text, "kind": key.kind, "ink": key.ink} for name, key in chart.keys.items()},
        "lines": [
            [line.row.number, line.text, [[one.key, one.value, one.low, one.high, one.text] for one in line.marks]]
            for line in chart.lines
        ],
    }


def ratio_data(model: ReportModel) -> list[dict[str, Any]]:
    """Of each row that is ranked against a better one: the ratio of the rates, whole and in the main phases."""
    return [
        _ratios(group, ranked)
        for group in model.ranking.groups
        for ranked in group.places
        if ranked is not group.places[0]
    ]


def _ratios(group: Group, ranked: RankedRow) -> dict[str, Any]:
    return {
        "row": ranked.row.number,
        "best": group.places[0].row.number,
        "where": f"{visible(group.size)}, {counted(group.ranks, 'rank')}",
        "parts": [
            _ratio("whole iteration", ranked.ratio, ranked.verdict),
            *(_ratio(one.name, one.ratio, one.verdict or "") for one in ranked.by_phase),
        ],
    }


def _ratio(name: str, ratio: Interval, verdict: str) -> list[Any]:
    return [name, ratio.value, ratio.low, ratio.high, verdict, interval(ratio, bound_digits=1)]


def curve_data(model: ReportModel) -> list[dict[str, Any]]:
    return [_curve(curve) for curve in model.scaling.curves]


def _curve(curve: Curve) -> dict[str, Any]:
    base = curve.base
    return {
        "kind": curve.kind,
        "base": base.number,
        "label": visible(f"{base.size} {base.backend} {base.strategy}"),
        "points": [
            {
                "row": point.row.number,
                "ranks": point.row.ranks,
                "eta": [point.eta.value, point.eta.low, point.eta.high, interval(point.eta, bound_digits=1)],
                "above": point.above_one,
            }
            for point in curve.points
        ],
    }


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
