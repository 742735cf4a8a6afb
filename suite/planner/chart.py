"""SVG drawing: memory by part of a plan's options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from suite.planner.memory import GIB, PARTS
from suite.planner.option import Option

COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#ff8ab7",
    "#a463f2",
    "#008080",
    "#97bbf5",
    "#9c6b4e",
    "#9498a0",
)
FONT = 'font-family="sans-serif" font-size="12"'


def memory_chart(options: Sequence[Option], title: str) -> str:
    """Stacked bars, one for each option; the line is the device's memory."""
    parts = [part for part in PARTS if any(part in option.memory for option in options)]
    colours = {part: COLOURS[PARTS.index(part) % len(COLOURS)] for part in parts}
    left, width, row = 260, 520, 26
    most = max([*(option.memory_bytes for option in options), options[0].capacity_bytes]) * 1.05
    bottom = 40 + row * len(options)
    body = [f'<text x="8" y="20" {FONT}>{escape(title)}</text>']
    for index, option in enumerate(options):
        x, y = float(left), 34 + row * index
        body.append(f'<text x="8" y="{y + 15}" {FONT}>{escape(option.label)}</text>')
        for part, size in option.memory.items():
            step = width * size / most
            body.append(
                f'<rect x="{x:.1f}" y="{y}" width="{step:.1f}" height="{row - 6}" fill="{colours[part]}">'
                f"<title>{escape(part)} {size / GIB:.1f} GiB</title></rect>"
            )
            x += step
        body.append(f'<text x="{x + 4:.1f}" y="{y + 15}" {FONT}>{option.memory_bytes / GIB:.1f} GiB</text>')
    limit = left + width * options[0].capacity_bytes / most
    body.append(f'<line x1="{limit:.1f}" y1="28" x2="{limit:.1f}" y2="{bottom}" stroke="#222" stroke-dasharray="4 3"/>')
    for index, part in enumerate(parts):
        x, y = 8 + 200 * (index % 4), bottom + 14 + 18 * (index // 4)
        body.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colours[part]}"/>')
        body.append(f'<text x="{x + 16}" y="{y}" {FONT}>{escape(part)}</text>')
    return svg_document(860, bottom + 24 + 18 * math.ceil(len(parts) / 4), body)


def svg_document(width: int, height: int, body: Sequence[str]) -> str:
    inner = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n{inner}\n</svg>\n'
    )
