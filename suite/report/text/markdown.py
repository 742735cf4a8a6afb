"""The report as GitHub Markdown, with files beside it, each replaced at once, the text last; and as JSON."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from suite.bundle.files import writing
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
from suite.report.text.section import Block, Bullets, Heading, Part, Pointer, Section, anchor, parts_of
from suite.report.text.sections import SECTIONS
from suite.spec.base import Frozen, UsageError
from suite.spec.manifest import Manifest

REPORT_SCHEMA = "suite/report/1"
#: What is shown of bundles is where they lie.
_CALLED = {"entries": "paths", "shown": "path"}
#: Of a row, beside its fields.
_FIGURES = ("samples_per_second", "tokens_per_second", "tokens_per_second_per_device", "two_modes")
#: Stem of the file beside the Markdown with all that few readers need.
DETAILS = "details"


def render(
    model: ReportModel, files: Mapping[str, str], parts: Sequence[Part] | None = None, first: Sequence[Section] = ()
) -> str:
    """``files``: stem of a file beside it -> its path in the report. ``first``: sections before its own."""
    every = parts_of(model, (*first, *SECTIONS)) if parts is None else parts
    parts = [part for part in every if not (part.section.is_beside and DETAILS in files)]
    head = (_markdown(block, is_padded=True) for block in answer(model))
    blocks = [f"# {inline(model.title)}", *head, *(text for part in parts for text in of_part(part, files))]
    if DETAILS in files:
        more = ", ".join(part.section.heading for part in every if part.section.is_beside)
        blocks.append(f"More in [{DETAILS}.md]({quote(files[DETAILS])}): {more}.")
    return "\n\n".join(blocks) + "\n"


def brief(model: ReportModel) -> str:
    """For a comment, which has none of the sections."""
    alone = (block.text if isinstance(block, Pointer) else block for block in answer(model))
    blocks = [f"### {inline(model.title)}", *(_markdown(block, is_padded=True) for block in alone)]
    return "\n\n".join(blocks) + "\n"


def of_part(part: Part, files: Mapping[str, str]) -> list[str]:
    shown, picture = list(map(_markdown, part.blocks)), part.section.picture
    if picture in files:
        shown.insert(0, f"![{part.section.heading}]({quote(files[picture])})")
    if part.section.is_folded:
        shown = ['<details markdown="1"><summary>Show</summary>', *shown, "</details>"]
    return [f"## {part.section.heading}", *shown]


def _markdown(block: Block, is_padded: bool = False) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Heading):
        return f"### {block.text}"
    if isinstance(block, Bullets):
        return "\n".join(f"- {line}" for line in block.lines)
    if isinstance(block, Pointer):
        links = ", ".join(f"[{heading}](#{anchor(heading)})" for heading in block.headings)
        return f"{block.text} More: {links}." if links else block.text
    if isinstance(block, Table):
        return grid(block, is_padded=is_padded)
    return fenced(block.lines, block.language)


def as_json(model: ReportModel) -> dict[str, Any]:
    """For ``json.dumps``, with the answer in sentences; where rows are referred to they are numbers."""
    body = {field.name: _plain(getattr(model, field.name)) for field in fields(model) if field.name != "rows"}
    names = {field.name: field.name for field in fields(Row)} | {name: name for name in _FIGURES} | _CALLED
    rows = [
        {called: _plain(getattr(row, name)) for name, called in names.items()} | row.utilisation | _asked(row.manifest)
        for row in model.rows
    ]
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
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as draft:
            drawn = draw(model, Path(draft)) if can_draw() else []
            parts = parts_of(model, (*first, *SECTIONS))
            named = {path.stem: path.name for path in drawn}
            if beside := [text for part in parts if part.section.is_beside for text in of_part(part, named)]:
                drawn.append(Path(draft) / f"{DETAILS}.md")
                drawn[-1].write_text(
                    "\n\n".join([f"# {inline(model.title)}: details", *beside]) + "\n", encoding="utf-8"
                )
            text = render(model, {path.stem: f"{folder.name}/{path.name}" for path in drawn}, parts)
            draft_text = Path(draft) / "report"
            draft_text.write_text(text, encoding="utf-8")
            if drawn:
                folder.mkdir(exist_ok=True)
            assets = tuple(path.replace(folder / path.name) for path in drawn)
            draft_text.replace(output)
        for name in (*(f"{name}.svg" for name in NAMES), f"{DETAILS}.md"):
            if folder / name not in assets:
                (folder / name).unlink(missing_ok=True)
    return (output, *assets)
