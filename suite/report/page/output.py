"""The report as one HTML file that needs nothing else: text, data, scripts and styles inside, and a policy that allows
only these."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.bundle.files import replace_atomically, writing
from suite.report import charts
from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import spans, visible
from suite.report.formatting.html import in_script, policy, source
from suite.report.formatting.numbers import number
from suite.report.page import bundles, figures
from suite.report.text.answer import answer
from suite.report.text.section import Section, anchor, parts_of
from suite.report.text.sections import SECTIONS
from suite.spec.base import UsageError
from suite.spec.phases import ALL

HERE = Path(__file__).parent
_STYLES = ("tokens.css", "shell.css", "controls.css", "table.css", "chart.css", "print.css", "report.css")
#: In the order in which they stand in the file: drawing, tables and the choice of light or dark, then each picture.
_SCRIPTS = (
    *("dom.js", "theme.js", "format.js", "save.js", "table.js", "inspect.js", "chart.js", "selection.js", "rows.js"),
    *("lines.js", "scaling.js", "ratios.js", "iteration.js", "differences.js", "report.js"),
)
#: The style that the plotting library puts into each picture, for its class ``plot``: allowed by its hash.
_PICTURE_STYLE = "picture.css"
_VENDOR = json.loads((HERE / "vendor" / "vendor.json").read_text(encoding="utf-8"))
PAGE_SCHEMA = "suite/page/1"
#: Heading of a part of the report -> the pictures that are shown below it, by their names in ``report.js``.
PICTURES = {
    "Ranking": ("ratios",),
    "Phases": ("phases", "iteration"),
    "Memory": ("memory",),
    "Scaling": ("scaling",),
    "Measured on": ("differences",),
}
#: No page is larger.
MOST_BYTES = 32 << 20


def page_text(model: ReportModel, path: Path, first: Sequence[Section] = ()) -> str:
    """``path``: where the page will be, from which it links to the bundles. ``first``: sections that come before its
    own."""
    tables: list[dict[str, Any]] = []
    parts = parts_of(model, (*first, *SECTIONS))
    shown_parts = [figures.of_part(part, PICTURES.get(part.section.heading, ()), tables) for part in parts]
    environments, environment_of = bundles.environments(model.rows)
    links = {row.number: bundles.href(row.shown.path, path) for row in model.rows}
    traces, left_out = bundles.traces_of(model.rows)
    data = {
        "schema": PAGE_SCHEMA,
        "rows": [figures.row_data(row, links[row.number], environment_of[row.number]) for row in model.rows],
        "charts": _charts(model),
        "facets": {name: name.capitalize() for name in figures.FACETS},
        "phases": [{"name": one.name, "label": one.label, "colour": one.colour} for one in ALL],
        "ratios": list(figures.ratios(model)),
        "curves": list(map(figures.curve_data, model.scaling)),
        "traces": [trace._asdict() for trace in traces],
        "tracesLeftOut": left_out,
        "environments": environments,
    }
    values = {
        "answer": answer(model),
        "parts": shown_parts,
        "evidence": bundles.evidence_of(model, path),
        "has_rows": bool(model.rows),
        "schema": PAGE_SCHEMA,
    }
    tables.append(bundles.runs_table(model.rows, path))
    return _rendered(model.title, values, {"report": data, "tables": tables})


def _charts(model: ReportModel) -> dict[str, list[dict[str, Any]]]:
    found = {
        "figure": charts.figures(model),
        "phases": (charts.phases(model, "seconds"), charts.phases(model, "share")),
        "memory": charts.memory(model),
    }
    return {name: list(map(figures.chart_data, known)) for name, known in found.items()}


def write_page(model: ReportModel, path: Path, first: Sequence[Section] = ()) -> str:
    """Replace a file at once, and say how large it is; the same runs at the same places give the same bytes. Raises
    UsageError when it cannot be written, or would be too large."""
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot write {path}: it is {'a folder' if path.is_dir() else 'no regular file'}")
    text = page_text(model, path, first)
    size = len(text.encode())
    if size > MOST_BYTES:
        raise UsageError(
            f"{path} would have {size >> 20} MiB, more than the {MOST_BYTES >> 20} of a page: report fewer folders at "
            "once, or write Markdown with --output"
        )
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_atomically(path, text)
    return f"{number(size / (1 << 20))} MiB"


def _rendered(title: str, values: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """``values``: what the template shows, every one of them escaped. ``data``: name -> what ``dom.js`` reads by
    ``pageData(name)``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    libraries = [_text("vendor", one["file"]) for one in _VENDOR["libraries"]]
    own = "\n".join(_text("script", name) for name in _SCRIPTS)
    scripts = [*libraries, f'"use strict";\n(() => {{\n{own}\n}})();\n']
    style = "\n".join(_text("style", name) for name in _STYLES)
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(spans=spans, kind=lambda block: type(block).__name__, anchor=anchor)
    return environment.get_template("report.html.jinja").render(
        **values,
        title=visible(title),
        policy=policy(scripts, [style, _text("style", _PICTURE_STYLE).removesuffix("\n")], "img-src data:"),
        scripts=scripts,
        style=style,
        data={name: in_script(value) for name, value in data.items()},
        libraries=[{**one, "licence_text": _text("vendor", one["licence_file"])} for one in _VENDOR["libraries"]],
    )


def _text(folder: str, name: str) -> str:
    return source(HERE / folder / name)
