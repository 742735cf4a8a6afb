"""SVG drawing: predicted against published step times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from suite.fitting.check import Row
from suite.planner.chart import COLOURS, FONT, svg_document


def agreement_chart(rows: Sequence[Row]) -> str:
    """Predicted over published step time, both logarithmic; lines at equality and at a tenth off."""
    pairs = [row for row in rows if row.kind == "step_time"]
    side, margin = 520, 56
    values = [math.log10(value) for row in pairs for value in (row.published, row.predicted)] or [0.0, 1.0]
    low, high = math.floor(min(values)), math.ceil(max(values)) + (1 if min(values) == max(values) else 0)

    def right(value: float) -> float:
        return margin + (math.log10(value) - low) / max(high - low, 1) * side

    def up(value: float) -> float:
        return margin + side - (right(value) - margin)

    sources = list(dict.fromkeys(row.source for row in pairs))
    body = [f'<rect x="{margin}" y="{margin}" width="{side}" height="{side}" fill="none" stroke="#999"/>']
    for factor, dash in ((1.0, ""), (1.1, ' stroke-dasharray="3 3"'), (0.9, ' stroke-dasharray="3 3"')):
        ends = (10**low, 10**low * factor, 10**high, 10**high * factor)
        body.append(
            f'<line x1="{right(ends[0]):.1f}" y1="{up(ends[1]):.1f}" x2="{right(ends[2]):.1f}" y2="{up(ends[3]):.1f}" '
            f'stroke="#777"{dash}/>'
        )
    for exponent in range(low, high + 1):
        x = right(10.0**exponent)
        y = up(10.0**exponent) + 4
        body.append(f'<text x="{x:.0f}" y="{margin + side + 16}" text-anchor="middle" {FONT}>1e{exponent}</text>')
        body.append(f'<text x="{margin - 6}" y="{y:.0f}" text-anchor="end" {FONT}>1e{exponent}</text>')
    for row in pairs:
        colour = COLOURS[sources.index(row.source) % len(COLOURS)]
        body.append(
            f'<circle cx="{right(row.published):.1f}" cy="{up(row.predicted):.1f}" r="3" fill="{colour}" '
            f'fill-opacity="0.6"><title>{escape(f"{row.source} {row.config}")} {100 * row.error:.1f} %</title></circle>'
        )
    for index, source in enumerate(sources):
        y = margin + 14 + 16 * index
        body.append(f'<circle cx="{margin + side + 20}" cy="{y - 4}" r="4" fill="{COLOURS[index % len(COLOURS)]}"/>')
        body.append(f'<text x="{margin + side + 30}" y="{y}" {FONT}>{escape(source)}</text>')
    body.append(f'<text x="{margin}" y="30" {FONT}>predicted over published step time, seconds</text>')
    return svg_document(margin * 2 + side + 180, margin * 2 + side, body)
