"""The report's Markdown as what a page shows: headings, paragraphs, lists, listings, and tables as data.

The page is read off the same text, so that it can say nothing else, and a section that is new in one is in the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

#: A pipe that ends a cell: one with a backslash before it is a character of the cell.
_PIPE = re.compile(r"(?<!\\)\|")
#: Without these a cell is its own text.
_MARKUP = re.compile(r"[\\`*_\[\]<>&]")
_RULE = re.compile(r"\|(?: *-+:? *\|)+")


class Span(NamedTuple):
    """A piece of running text; ``code``: as a listing shows it."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Table:
    """``rights``: which columns hold figures. A cell that was left empty below a like one holds it again."""

    titles: tuple[str, ...]
    rights: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Item:
    """A line of a list, with the lines below it."""

    spans: tuple[Span, ...]
    below: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Block:
    """One of: a heading or a paragraph (``spans``), a list (``items``), a listing (``text``), a table."""

    kind: Literal["heading", "text", "list", "listing", "table"]
    spans: tuple[Span, ...] = ()
    items: tuple[Item, ...] = ()
    text: str = ""
    table: Table | None = None


@dataclass(frozen=True)
class Part:
    """What stands below one heading of the report."""

    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """The report: its title, what stands before the first heading, and its parts."""

    title: str
    lead: tuple[Block, ...]
    parts: tuple[Part, ...]


def read(markdown: str) -> Document:
    """What ``suite.report.text.markdown.render`` gave, without pictures."""
    title = ""
    lead: list[Block] = []
    parts: list[tuple[str, list[Block]]] = []
    for chunk in _chunks(markdown):
        if chunk.startswith("# "):
            title = plain(_inline(chunk[2:]))
        elif chunk.startswith("## "):
            parts.append((plain(_inline(chunk[3:])), []))
        else:
            (parts[-1][1] if parts else lead).extend(_blocks(chunk))
    return Document(title, tuple(lead), tuple(Part(heading, tuple(blocks)) for heading, blocks in parts))


def plain(spans: Sequence[Span]) -> str:
    return "".join(span.text for span in spans)


def _chunks(markdown: str) -> Iterator[str]:
    """Blocks between blank lines; a fence keeps those that are in it."""
    held: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        if fence:
            held.append(line)
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line[: len(line) - len(line.lstrip("`"))]
            held.append(line)
        elif line:
            held.append(line)
        elif held:
            yield "\n".join(held)
            held = []
    if held:
        yield "\n".join(held)


def _blocks(chunk: str) -> Iterator[Block]:
    """A table is read here: a parser of all Markdown takes a second for a thousand of its rows."""
    lines = chunk.split("\n")
    if len(lines) > 1 and _RULE.fullmatch(lines[1]):
        yield Block("table", table=_table(lines))
        return
    yield from _read(_parser().parse(chunk))


def _table(lines: Sequence[str]) -> Table:
    titles = tuple(_cells(lines[0]))
    rights = tuple(cell.strip().endswith(":") for cell in lines[1].strip("|").split("|"))
    rows: list[tuple[str, ...]] = []
    for line in lines[2:]:
        cells = _cells(line)
        above = rows[-1] if rows else cells
        rows.append(tuple(cell or before for cell, before in zip(cells, above, strict=True)))
    return Table(titles, rights, tuple(rows))


def _cells(line: str) -> list[str]:
    """The text of each cell, without what made it a code span: a table of data says by its column what a cell is."""
    raw = _PIPE.split(line)[1:-1]
    return [plain(_inline(text)) if _MARKUP.search(text) else text for text in (cell.strip() for cell in raw)]


@cache
def _parser() -> MarkdownIt:
    """Nothing that a run wrote becomes a link, a picture or HTML, whatever it looks like."""
    return MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink", "html_inline", "html_block"])


def _inline(text: str) -> tuple[Span, ...]:
    tokens = _parser().parseInline(text.replace("\\|", "|"))
    return _spans(tokens[0]) if tokens else ()


def _spans(token: Token) -> tuple[Span, ...]:
    found: list[Span] = []
    for child in token.children or ():
        if child.type == "code_inline":
            found.append(Span(child.content, code=True))
        elif child.type in ("softbreak", "hardbreak"):
            found.append(Span(" "))
        elif child.content:
            found.append(Span(child.content))
    merged: list[Span] = []
    for span in found:
        if merged and merged[-1].code == span.code:
            merged[-1] = Span(merged[-1].text + span.text, span.code)
        else:
            merged.append(span)
    return tuple(merged)


def _read(tokens: Sequence[Token]) -> Iterator[Block]:
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.type == "heading_open":
            yield Block("heading", spans=_spans(tokens[at + 1]))
        elif token.type == "paragraph_open":
            yield Block("text", spans=_spans(tokens[at + 1]))
        elif token.type == "fence":
            yield Block("listing", text=token.content)
        elif token.type == "bullet_list_open":
            end = _closing(tokens, at)
            yield Block("list", items=_items(tokens[at + 1 : end]))
            at = end
        at += 1


def _items(tokens: Sequence[Token]) -> tuple[Item, ...]:
    found, at = [], 0
    while at < len(tokens):
        end = _closing(tokens, at)
        inside = tokens[at + 1 : end]
        first = next((token for token in inside if token.type == "inline"), None)
        lists = [place for place, token in enumerate(inside) if token.type == "bullet_list_open"]
        below = _items(inside[lists[0] + 1 : _closing(inside, lists[0])]) if lists else ()
        found.append(Item(_spans(first) if first else (), below))
        at = end + 1
    return tuple(found)


def _closing(tokens: Sequence[Token], at: int) -> int:
    """Where the element that opens at ``at`` closes."""
    depth = 0
    for place in range(at, len(tokens)):
        depth += tokens[place].nesting
        if depth == 0:
            return place
    return len(tokens)


def as_data(table: Table) -> dict[str, Any]:
    """For the page's script."""
    return {"titles": table.titles, "rights": table.rights, "rows": table.rows}
