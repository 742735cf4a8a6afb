"""What the page shows, as data: the report's blocks, and figures that its script draws, with the Markdown's text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from suite.report import charts
from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.scaling import Curve
from suite.report.formatting.escape import plain, visible
from suite.report.formatting.grid import Table
from suite.report.formatting.numbers import counted, interval
from suite.report.text.section import Block, Bullets, Heading, Part, anchor

#: What a row is filtered by; those that all rows share are not shown.
FACETS = ("size", "ranks", "backend", "work", "kind", "layout", "precision", "machine", "scaling")


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
        "scaling": row.manifest.workload.scaling,
        "variant": visible(row.variant),
        "track": row.setting.track,
        "runs": row.ok_runs,
        "doubts": _doubts(row),
        "href": href,
        "environment": environment,
    }


def _doubts(row: Row) -> list[str]:
    """In the words that the tables have: why a reader should look twice."""
    doubts = {
        "suspect runs" if row.is_ranked else "all runs suspect, not ranked": row.holds_suspect,
        "unsteady": row.unsteady_runs,
        "two modes": row.two_modes,
        "too few runs to publish": 0 < len(row.measured) < RUNS_TO_PUBLISH,
    }
    return [words for words, is_so in doubts.items() if is_so]


def chart_data(chart: charts.Chart) -> dict[str, Any]:
    keys = {name: key._asdict() for name, key in chart.keys.items()}
    return {**vars(chart), "keys": keys, "lines": _lines(chart.lines)}


def _lines(lines: Iterable[charts.Line]) -> list[list[Any]]:
    """As ``rows.js`` reads them: of each its row, text and marks, these of key, value, bounds and text."""
    return [[line.row.number, line.text, line.marks] for line in lines]


def ratios(model: ReportModel) -> Iterator[dict[str, Any]]:
    """Rates of a row over those of the best of its group: of the whole iteration, then of the main phases."""
    for group in model.ranking.groups:
        best, *others = group.places
        for one in others:
            of_phases = ((part.name, part.ratio, part.verdict or "") for part in one.by_phase)
            yield {
                "row": one.row.number,
                "best": best.row.number,
                "where": visible(f"{group.best.size}, {counted(group.best.ranks, 'rank')}"),
                "parts": [
                    [name, ratio.value, ratio.low, ratio.high, interval(ratio, bound_digits=1), verdict]
                    for name, ratio, verdict in (("whole iteration", one.ratio, one.verdict), *of_phases)
                ],
            }


def curve_data(curve: Curve) -> dict[str, Any]:
    base = curve.base
    label = visible(f"{base.size} {base.backend} {base.manifest.layout.strategy()}")
    return {"kind": curve.kind, "base": base.number, "label": label, "lines": _lines(charts.points(curve))}


Shown = dict[str, Any]


def of_part(part: Part, pictures: Sequence[str], tables: list[Shown]) -> Shown:
    """With its tables moved to ``tables`` and their places instead; a table's caption is the last line before it."""
    blocks: list[Block | int] = []
    caption = heading = part.section.heading
    for block in part.blocks:
        if isinstance(block, Table):
            blocks.append(len(tables))
            tables.append({**as_data(block), "caption": caption, "part": heading})
            blocks += [Bullets(block.notes)] if block.notes else []
            continue
        if isinstance(block, (str, Heading)):
            text = block if isinstance(block, str) else block.text
            caption = f"{heading}: {plain(text).rstrip(':.')}"[:160]
        blocks.append(block)
    return {
        "heading": heading,
        "id": f"part-{anchor(heading)}",
        "blocks": blocks,
        "pictures": pictures,
        "is_closed": part.section.is_folded,
    }


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
