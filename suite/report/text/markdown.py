"""The report as GitHub Markdown."""

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import quote

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import fenced, inline
from suite.report.formatting.grid import Table, grid
from suite.report.text.answer import answer
from suite.report.text.section import Block, Bullets, Heading, Listing, Part, Pointers, Section, parts_of
from suite.report.text.sections import SECTIONS

#: The file beside the Markdown with all that few readers need.
DETAILS = "details.md"


def render(
    model: ReportModel, files: Mapping[str, str], parts: Sequence[Part] | None = None, first: Sequence[Section] = ()
) -> str:
    """The text of the report. ``files``: name of a picture or a listing -> its path as the report links to it.

    ``parts``: where they were made already; ``first``: sections that come before its own.
    """
    every = parts_of(model, (*first, *SECTIONS)) if parts is None else parts
    parts = [part for part in every if not (part.is_beside and DETAILS in files)]
    headings = {part.heading for part in parts}
    blocks = [
        f"# {inline(model.title)}",
        *(_markdown(block, files, headings, is_padded=True) for block in answer(model)),
    ]
    for part in parts:
        blocks += of_part(part, files)
    if DETAILS in files:
        more = ", ".join(part.heading for part in every if part.is_beside)
        blocks.append(f"More in [{DETAILS}]({quote(files[DETAILS])}): {more}.")
    return "\n\n".join(blocks) + "\n"


def brief(model: ReportModel) -> str:
    """The answer alone, as a comment of a pull request has it."""
    return (
        "\n\n".join([f"### {inline(model.title)}", *(_markdown(block, {}, is_padded=True) for block in answer(model))])
        + "\n"
    )


def of_part(part: Part, files: Mapping[str, str]) -> list[str]:
    shown = [_markdown(block, files) for block in part.blocks]
    if part.picture and part.picture.name in files:
        shown.insert(0, f"![{part.picture.text}]({quote(files[part.picture.name])})")
    if part.is_folded:
        shown = ['<details markdown="1"><summary>Show</summary>', *shown, "</details>"]
    return [f"## {part.heading}", *shown] if part.heading else shown


def _markdown(block: Block, files: Mapping[str, str], headings: Collection[str] = (), is_padded: bool = False) -> str:
    """``headings``: those that a link can lead to."""
    if isinstance(block, str):
        return block
    if isinstance(block, Heading):
        return f"### {block.text}"
    if isinstance(block, Bullets):
        return "\n".join(f"- {line}" for line in block.lines)
    if isinstance(block, Table):
        return grid(block, is_padded=is_padded)
    if isinstance(block, Pointers):
        pieces = (f"[{text}](#{anchor(to)})" if to in headings else text for text, to in block.pieces)
        return f"{block.start} {', '.join(pieces)}."
    if block.file in files:
        return f"[{block.file}]({quote(files[block.file])}) has them."
    return fenced(block.lines, block.language)


def beside(title: str, files: Mapping[str, str], parts: Sequence[Part]) -> dict[str, str]:
    """Text by name of the files that stand beside the Markdown. ``files``: pictures as these files link to them."""
    listings = [block for part in parts for block in part.blocks if isinstance(block, Listing) and block.file]
    found = {block.file: "\n".join(block.lines) + "\n" for block in listings}
    blocks = [text for part in parts if part.is_beside for text in of_part(part, files)]
    return {**found, DETAILS: "\n\n".join([f"# {inline(title)}: details", *blocks]) + "\n"} if blocks else found


def anchor(heading: str) -> str:
    """Of one of the report's own headings, as GitHub and the page name it."""
    return heading.lower().replace(" ", "-")
