"""What a section of the report is, and the Markdown that sections share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from suite.report.facts.model import ReportModel

_MOST_LINES = 100


@dataclass(frozen=True)
class Picture:
    """A plot by its name in ``suite.report.plots``, and its alternative text."""

    name: str
    text: str


@dataclass(frozen=True)
class Section:
    """One section of the report.

    ``blocks`` returns its paragraphs, lists and tables as finished Markdown, every value in them escaped
    (``suite.report.formatting.escape``). Empty blocks are dropped, and a section without blocks is left out.
    ``heading``: None where the section goes on under the heading of the one before it. ``picture``: shown first.
    ``needs_rows``: whether it is left out of a report without rows.
    """

    heading: str | None
    blocks: Callable[[ReportModel], Iterable[str]]
    picture: Picture | None = None
    needs_rows: bool = True

    def markdown(self, model: ReportModel, plots: Mapping[str, str]) -> list[str]:
        """The blocks with heading and picture. ``plots``: name of a plot -> its path as the report links to it."""
        if self.needs_rows and not model.rows:
            return []
        blocks = [block for block in self.blocks(model) if block]
        if not blocks:
            return []
        heading = [f"## {self.heading}"] if self.heading else []
        picture = [self.picture] if self.picture and self.picture.name in plots else []
        return [*heading, *(f"![{one.text}]({quote(plots[one.name])})" for one in picture), *blocks]


def bullets(lines: Iterable[str]) -> str:
    """A list, one line each; empty for no lines."""
    return "\n".join(f"- {line}" for line in lines)


def few(lines: Sequence[str]) -> list[str]:
    """As many lines as somebody reads, and how many more there are."""
    left = len(lines) - _MOST_LINES
    return list(lines) if left <= 0 else [*lines[:_MOST_LINES], f"and {left} more"]
