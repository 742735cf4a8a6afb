"""What MkDocs asks while it builds the site: pages made from code, anchors as GitHub has them, links out of docs/."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs_site.links import github_anchor, within_the_site  # noqa: E402
from docs_site.reference import PAGES  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Headings get the anchors that they have on GitHub, where links were written for."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda text, separator: github_anchor(text)
    return config


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Reference pages and schemas are in no file: they are what the code says now."""
    from mkdocs.structure.files import File

    from suite.export.schema import schema, schema_names

    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    for name in schema_names():
        text = json.dumps(schema(name), indent=1, sort_keys=True)
        files.append(File.generated(config, f"schemas/{name}.json", content=f"{text}\n"))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Links to what is in the repository and not on the site become plain words, and numbered lists stay whole."""
    return in_fours(within_the_site(markdown, Path(page.file.src_uri), Path(config.docs_dir)))


def in_fours(markdown: str) -> str:
    """What belongs to a numbered item, indented by four spaces: by fewer Python-Markdown ends the list there."""
    lines, width = [], 0
    for line in markdown.split("\n"):
        item = re.match(r"\d+\. ", line)
        if item or line[:1].strip():
            width = len(item[0]) if item else 0
        elif width and line.startswith(" " * width):
            line = "    " + line[width:]
        lines.append(line)
    return "\n".join(lines)
