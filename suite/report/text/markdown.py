"""The report as GitHub Markdown, with files beside it, each replaced at once, the text last; and as JSON."""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from suite.bundle.parts import Part as RecordPart
from suite.bundle.record import plain
from suite.report.facts.entry import Entry
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.variants import LaunchSetting
from suite.report.formatting.escape import fenced, inline
from suite.report.formatting.grid import Table, grid
from suite.report.plots import NAMES, can_draw, draw
from suite.report.text.answer import answer, as_lines
from suite.report.text.section import Block, Bullets, Heading, Listing, Part, Pointers, Section, parts_of
from suite.report.text.sections import SECTIONS
from suite.report.text.sections.around import DIGESTS
from suite.spec.base import Frozen, UsageError
from suite.spec.manifest import Manifest

REPORT_SCHEMA = "suite/report/1"
#: Of a row, beside its fields.
_FIGURES = ("samples_per_second", "tokens_per_second", "tokens_per_second_per_device", "two_modes")
#: The alternative text of a plot.
_PICTURES = {
    "throughput": "Samples per second of each row, and what was predicted",
    "scaling": "Scaling efficiency by rank count",
    "phases": "Share of an iteration by phase",
    "memory": "Peak memory against the theoretical floor",
}
#: The file beside the Markdown with all that few readers need.
DETAILS = "details.md"


def render(
    model: ReportModel, files: Mapping[str, str], parts: Sequence[Part] | None = None, first: Sequence[Section] = ()
) -> str:
    """``files``: name of a picture or listing -> its path in the report. ``first``: sections before its own."""
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
    blocks = [f"### {inline(model.title)}", *(_markdown(block, {}, is_padded=True) for block in answer(model))]
    return "\n\n".join(blocks) + "\n"


def of_part(part: Part, files: Mapping[str, str]) -> list[str]:
    shown = [_markdown(block, files) for block in part.blocks]
    if part.picture in files:
        shown.insert(0, f"![{_PICTURES[part.picture]}]({quote(files[part.picture])})")
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


def as_json(model: ReportModel) -> dict[str, Any]:
    """For ``json.dumps``, with the answer in sentences; where rows are referred to they are numbers."""
    body = {field.name: _plain(getattr(model, field.name)) for field in fields(model) if field.name != "rows"}
    names = [*(field.name for field in fields(Row)), *_FIGURES]
    rows = [{name: _plain(getattr(row, name)) for name in names} | _asked(row.manifest) for row in model.rows]
    return {"schema": REPORT_SCHEMA, "summary": list(as_lines(model)), "rows": rows, **body}


def _asked(manifest: Manifest) -> dict[str, Any]:
    workload, nodes, seed = manifest.workload, manifest.layout.nodes, manifest.measure.seed
    of_work = {"workload": workload.name, "scaling": workload.scaling}
    return {**of_work, "nodes": nodes, "seed": seed, "manifest_hash": manifest.hash}


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.number
    if isinstance(value, Entry):
        return value.path
    if isinstance(value, LaunchSetting):
        return value._asdict()
    if isinstance(value, Frozen):
        return value.model_dump(mode="json")
    if isinstance(value, RecordPart):
        return plain(value)
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(one) for one in value] if isinstance(value, (tuple, list)) else value


def write(model: ReportModel, output: Path, first: Sequence[Section] = ()) -> tuple[Path, ...]:
    """Write ``output``, and its pictures and further files in ``<its stem>-assets``; the paths of all of them.

    The same model gives the same bytes. Files of an earlier report that this one has no data for are removed. Raises
    UsageError when a file cannot be written; the earlier report is then still whole or has newer pictures.
    """
    folder = output.parent / f"{output.stem}-assets"
    if output.exists() and not output.is_file():
        raise UsageError(f"cannot write {output}: it is {'a folder' if output.is_dir() else 'no regular file'}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as draft:
            drawn = draw(model, Path(draft)) if can_draw() else []
            parts = parts_of(model, (*first, *SECTIONS))
            for name, text in beside(model.title, {path.stem: path.name for path in drawn}, parts).items():
                drawn.append(Path(draft) / name)
                drawn[-1].write_text(text, encoding="utf-8", newline="\n")
            names = {path.stem if path.suffix == ".svg" else path.name: path.name for path in drawn}
            text = render(model, {name: f"{folder.name}/{file}" for name, file in names.items()}, parts)
            draft_text = Path(draft) / "report"
            draft_text.write_text(text, encoding="utf-8", newline="\n")
            if drawn:
                folder.mkdir(exist_ok=True)
            assets = tuple(path.replace(folder / path.name) for path in drawn)
            draft_text.replace(output)
        for name in (*(f"{name}.svg" for name in NAMES), DIGESTS, DETAILS):
            if folder / name not in assets:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename2 or error.filename or output}: {error.strerror or error}"
        ) from error
    return (output, *assets)
