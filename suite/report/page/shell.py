"""One HTML file that needs nothing else: text, data, scripts and styles inside, and a policy that allows only these."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.report.formatting.escape import visible
from suite.report.formatting.html import in_script, policy, source

HERE = Path(__file__).parent
#: What every page begins with: colours and sizes, the frame around the content, and what is printed.
SHELL_STYLES = ("tokens.css", "shell.css", "controls.css", "table.css", "chart.css", "print.css")
#: Drawing, tables and the choice of light or dark; each page adds what it shows.
SHELL_SCRIPTS = ("dom.js", "theme.js", "format.js", "save.js", "table.js", "inspect.js", "chart.js")
#: The style that the plotting library puts into each picture, for its class ``plot``: allowed by its hash.
_PICTURE_STYLE = "picture.css"
_VENDOR = json.loads((HERE / "vendor" / "vendor.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Page:
    """What one page is made of.

    ``template``: a Jinja template of this folder that extends ``shell.html.jinja``; ``values`` are what it shows, every
    one of them escaped. ``data``: name -> what ``dom.js`` reads by ``pageData(name)``. ``scripts`` and ``styles``:
    names in ``script/`` and ``style/`` after those of the shell, in order.
    """

    title: str
    template: str
    values: Mapping[str, Any]
    data: Mapping[str, Any]
    scripts: Sequence[str] = ()
    styles: Sequence[str] = ()


def render(page: Page) -> str:
    """The whole HTML file; the same page gives the same bytes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    libraries = [_text("vendor", one["file"]) for one in _VENDOR["libraries"]]
    own = "\n".join(_text("script", name) for name in (*SHELL_SCRIPTS, *page.scripts))
    scripts = [*libraries, f'"use strict";\n(() => {{\n{own}\n}})();\n']
    style = "\n".join(_text("style", name) for name in (*SHELL_STYLES, *page.styles))
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(page.template).render(
        **page.values,
        title=visible(page.title),
        policy=policy(scripts, [style, _text("style", _PICTURE_STYLE).removesuffix("\n")], "img-src data:"),
        scripts=scripts,
        style=style,
        data={name: in_script(value) for name, value in page.data.items()},
        libraries=[{**one, "licence_text": _text("vendor", one["licence_file"])} for one in _VENDOR["libraries"]],
    )


def _text(folder: str, name: str) -> str:
    return source(HERE / folder / name)
