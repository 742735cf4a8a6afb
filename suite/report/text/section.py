"""What a section of the report is, the blocks it is made of, and the parts that sections make together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from suite.report.facts.model import ReportModel
from suite.report.formatting.grid import Table

_MOST_LINES = 100


class Heading(NamedTuple):
    text: str


class Bullets(NamedTuple):
    lines: tuple[str, ...]


class Listing(NamedTuple):
    """Lines as they are. ``file``: name of the file beside the Markdown that holds them, where they are many."""

    lines: tuple[str, ...]
    language: str = ""
    file: str = ""


class Pointer(NamedTuple):
    """A few words, and the heading under which there is more of it; empty: nowhere."""

    text: str
    heading: str = ""


class Pointers(NamedTuple):
    """One line of several facts that lead to their details."""

    start: str
    pieces: tuple[Pointer, ...]

    @property
    def text(self) -> str:
        return f"{self.start} {', '.join(piece.text for piece in self.pieces)}."


#: A string is a paragraph. Every text is marked (``suite.report.formatting.escape``), but for those of listings.
Block = str | Heading | Bullets | Listing | Pointers | Table


class Picture(NamedTuple):
    """A plot by its name in ``suite.report.plots``, and its alternative text."""

    name: str
    text: str


@dataclass(frozen=True)
class Section:
    """Empty blocks are dropped, and a section without blocks is left out.

    ``heading``: None where it goes on under that of the one before it. ``needs_rows``: it is left out of a report
    without rows. ``is_folded``: it is looked up, not read. ``is_beside``: the Markdown has it in a file of its own.
    """

    heading: str | None
    blocks: Callable[[ReportModel], Iterable[Block]]
    picture: Picture | None = None
    needs_rows: bool = True
    is_folded: bool = False
    is_beside: bool = False


@dataclass(frozen=True)
class Part:
    heading: str
    blocks: tuple[Block, ...]
    picture: Picture | None = None
    is_folded: bool = False
    is_beside: bool = False


def parts_of(model: ReportModel, sections: Sequence[Section]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for section in sections:
        made: Iterable[Block] = () if section.needs_rows and not model.rows else section.blocks(model)
        blocks = tuple(one for one in made if (one.lines if isinstance(one, Bullets | Listing) else one))
        if not blocks:
            continue
        if section.heading is None and parts:
            parts[-1] = replace(parts[-1], blocks=(*parts[-1].blocks, *blocks))
        else:
            parts.append(Part(section.heading or "", blocks, section.picture, section.is_folded, section.is_beside))
    return tuple(parts)


def bullets(lines: Iterable[str]) -> Bullets:
    return Bullets(tuple(lines))


def few(lines: Sequence[str]) -> list[str]:
    left = len(lines) - _MOST_LINES
    return list(lines) if left <= 0 else [*lines[:_MOST_LINES], f"and {left} more"]
