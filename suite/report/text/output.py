"""What a report gives: JSON for programs, and files on disk, each replaced at once, the text last."""

import tempfile
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.plots import NAMES, pictures
from suite.report.text.answer import as_lines
from suite.report.text.markdown import DETAILS, beside, render
from suite.report.text.section import Section, parts_of
from suite.report.text.sections import SECTIONS
from suite.report.text.sections.around import DIGESTS
from suite.spec.base import Frozen, UsageError

REPORT_SCHEMA = "suite/report/1"


def as_json(model: ReportModel) -> dict[str, Any]:
    """The whole model with its answer in sentences, for ``json.dumps``; where rows are referred to they are numbers."""
    body = {field.name: _plain(getattr(model, field.name)) for field in fields(model) if field.name != "rows"}
    rows = [{field.name: _plain(getattr(row, field.name)) for field in fields(row)} for row in model.rows]
    return {"schema": REPORT_SCHEMA, "summary": list(as_lines(model)), "rows": rows, **body}


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.number
    if isinstance(value, Frozen):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(one) for one in value] if isinstance(value, (tuple, list)) else value


def write(model: ReportModel, output: Path, first: Sequence[Section] = ()) -> tuple[Path, ...]:
    """Write ``output``, and its pictures and further files in ``<its stem>-assets``; the paths of all of them.

    The same model gives the same bytes. Files of an earlier report that this one has no data for are removed.
    ``first``: sections that come before its own. Raises UsageError when a file cannot be written; the earlier report is
    then still whole or has newer pictures.
    """
    folder = output.parent / f"{output.stem}-assets"
    if output.exists() and not output.is_file():
        raise UsageError(f"cannot write {output}: it is {'a folder' if output.is_dir() else 'no regular file'}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as draft:
            drawn = pictures(model, Path(draft))
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
