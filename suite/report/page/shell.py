"""One HTML file that needs nothing else: text, data, scripts and styles inside, and a policy that allows only these."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suite.report.formatting.escape import visible
from suite.report.formatting.html import in_script, policy, source

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


def render(title: str, values: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The whole HTML file; the same values give the same bytes.

    ``values``: what the template shows, every one of them escaped. ``data``: name -> what ``dom.js`` reads by
    ``pageData(name)``.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    libraries = [_text("vendor", one["file"]) for one in _VENDOR["libraries"]]
    own = "\n".join(_text("script", name) for name in _SCRIPTS)
    scripts = [*libraries, f'"use strict";\n(() => {{\n{own}\n}})();\n']
    style = "\n".join(_text("style", name) for name in _STYLES)
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
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
