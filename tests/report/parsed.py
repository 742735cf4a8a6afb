"""HTML as a browser would take it apart."""

import json
from html.parser import HTMLParser
from typing import Any


class Parsed(HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[tuple[str, dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inline.append((*self._open, data))
        else:
            self.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def data(self, name: str) -> Any:
        return next(json.loads(text) for _, attributes, text in self.inline if attributes.get("id") == f"data-{name}")
