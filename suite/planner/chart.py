"""SVG drawings: memory by part of a plan's options, and predicted against published step times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from suite.planner.check import Row
from suite.planner.plan import GIB, Option

_COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#ff8ab7",
    "#a463f2",
    "#97bbf5",
    "#9c6b4e",
    "#9498a0",
)
_FONT = 'font-family="sans-serif" font-size="12"'


def memory_chart(options: Sequence[Option], title: str) -> str:
    """Stacked bars, one for each option; the line is the device's memory."""
    parts = list(dict.fromkeys(part for option in options for part in option.memory))
    colours = {part: _COLOURS[index % len(_COLOURS)] for index, part in enumerate(parts)}
    left, width, row = 260, 520, 26
    most = max([*(option.memory_bytes for option in options), options[0].capacity_bytes]) * 1.05
    bottom = 40 + row * len(options)
    body = [f'<text x="8" y="20" {_FONT}>{escape(title)}</text>']
    for index, option in enumerate(options):
        x, y = float(left), 34 + row * index
        body.append(f'<text x="8" y="{y + 15}" {_FONT}>{escape(option.label)}</text>')
        for part, size in option.memory.items():
            step = width * size / most
            body.append(
                f'<rect x="{x:.1f}" y="{y}" width="{step:.1f}" height="{row - 6}" fill="{colours[part]}">'
                f"<title>{escape(part)} {size / GIB:.1f} GiB</title></rect>"
            )
            x += step
        body.append(f'<text x="{x + 4:.1f}" y="{y + 15}" {_FONT}>{option.memory_bytes / GIB:.1f} GiB</text>')
    limit = left + width * options[0].capacity_bytes / most
    body.append(f'<line x1="{limit:.1f}" y1="28" x2="{limit:.1f}" y2="{bottom}" stroke="#222" stroke-dasharray="4 3"/>')
    for index, part in enumerate(parts):
        x, y = 8 + 200 * (index % 4), bottom + 14 + 18 * (index // 4)
        body.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colours[part]}"/>')
        body.append(f'<text x="{x + 16}" y="{y}" {_FONT}>{escape(part)}</text>')
    return _svg(860, bottom + 24 + 18 * math.ceil(len(parts) / 4), body)


def agreement_chart(rows: Sequence[Row]) -> str:
    """Predicted over published step time, both logarithmic; lines at equality and at a tenth off."""
    pairs = [row for row in rows if row.kind == "step_time"]
    side, margin = 520, 56
    values = [math.log10(value) for row in pairs for value in (row.published, row.predicted)] or [0.0, 1.0]
    low, high = math.floor(min(values)), math.ceil(max(values)) + (1 if min(values) == max(values) else 0)

    def place(value: float) -> float:
        return margin + (math.log10(value) - low) / max(high - low, 1) * side

    def up(value: float) -> float:
        return margin + side - (place(value) - margin)

    sources = list(dict.fromkeys(row.source for row in pairs))
    body = [f'<rect x="{margin}" y="{margin}" width="{side}" height="{side}" fill="none" stroke="#999"/>']
    for factor, dash in ((1.0, ""), (1.1, ' stroke-dasharray="3 3"'), (0.9, ' stroke-dasharray="3 3"')):
        ends = (10**low, 10**low * factor, 10**high, 10**high * factor)
        body.append(
            f'<line x1="{place(ends[0]):.1f}" y1="{up(ends[1]):.1f}" x2="{place(ends[2]):.1f}" y2="{up(ends[3]):.1f}" '
            f'stroke="#777"{dash}/>'
        )
    for exponent in range(low, high + 1):
        x = place(10.0**exponent)
        y = up(10.0**exponent) + 4
        body.append(f'<text x="{x:.0f}" y="{margin + side + 16}" text-anchor="middle" {_FONT}>1e{exponent}</text>')
        body.append(f'<text x="{margin - 6}" y="{y:.0f}" text-anchor="end" {_FONT}>1e{exponent}</text>')
    for row in pairs:
        colour = _COLOURS[sources.index(row.source) % len(_COLOURS)]
        body.append(
            f'<circle cx="{place(row.published):.1f}" cy="{up(row.predicted):.1f}" r="3" fill="{colour}" '
            f'fill-opacity="0.6"><title>{escape(f"{row.source} {row.config}")} {100 * row.error:.1f} %</title></circle>'
        )
    for index, source in enumerate(sources):
        y = margin + 14 + 16 * index
        body.append(f'<circle cx="{margin + side + 20}" cy="{y - 4}" r="4" fill="{_COLOURS[index % len(_COLOURS)]}"/>')
        body.append(f'<text x="{margin + side + 30}" y="{y}" {_FONT}>{escape(source)}</text>')
    body.append(f'<text x="{margin}" y="30" {_FONT}>predicted over published step time, seconds</text>')
    return _svg(margin * 2 + side + 180, margin * 2 + side, body)


def _svg(width: int, height: int, body: Sequence[str]) -> str:
    inner = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n{inner}\n</svg>\n'
    )
