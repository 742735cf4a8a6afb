"""One HTML file that needs nothing else: text, data, scripts and styles inside, and a policy that allows only these."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from suite.report.formatting.escape import visible

HERE = Path(__file__).parent
#: What every page begins with: colours and sizes, the frame around the content, and what is printed.
SHELL_STYLES = ("tokens.css", "shell.css", "controls.css", "table.css", "chart.css", "print.css")
#: Drawing, tables and the choice of light or dark; each page adds what it shows.
SHELL_SCRIPTS = ("dom.js", "theme.js", "format.js", "save.js", "table.js", "inspect.js", "chart.js")
#: The style that the plotting library puts into each picture, for its class ``plot``: allowed by its hash.
_PICTURE_STYLE = "picture.css"
_VENDOR = json.loads((HERE / "vendor" / "vendor.json").read_text(encoding="utf-8"))
#: Characters that end a script or start a comment in one, as JSON escapes.
_IN_SCRIPT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


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
        policy=_policy(scripts, [style, _text("style", _PICTURE_STYLE).removesuffix("\n")]),
        scripts=scripts,
        style=style,
        data={name: in_script(value) for name, value in page.data.items()},
        libraries=[{**one, "licence_text": _text("vendor", one["licence_file"])} for one in _VENDOR["libraries"]],
    )


def in_script(value: Any) -> str:
    """As JSON that no HTML parser ends early, in ASCII alone, so that nothing in it turns or hides text either."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_IN_SCRIPT)


def _policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Nothing is loaded and nothing is run but what is in the file; pictures are those that the page draws itself."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {' '.join(map(_hash, styles))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _text(folder: str, name: str) -> str:
    """A source of this folder, checked to be whole inside a script or style element."""
    text = (HERE / folder / name).read_text(encoding="utf-8")
    assert not any(end in text.lower() for end in ("</script", "</style", "<!--")), f"{name} would end its element"
    return text
