"""From results folders to a file or to another tool's folder."""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from suite.bundle.files import writing
from suite.bundle.imported.record import MARK
from suite.bundle.tags import tags_by_path
from suite.export.columns import EXPORT_SCHEMA
from suite.export.formats import csv, jsonl, openmetrics, parquet
from suite.export.kept import read_runs, rows_of_runs
from suite.export.tables import IMPORTED, RUNS, Row, Table, find_table, rows_of
from suite.export.tools.given import given
from suite.report.formatting.numbers import counted
from suite.report.reading import Found, read_entries
from suite.spec.base import UsageError, printable
from suite.spec.names import nearest
from suite.spec.optional import required

#: How formats that are text make their lines.
_TEXTS: dict[str, Callable[[Table, Iterable[Row]], Iterator[str]]] = {
    ".csv": csv.lines,
    ".jsonl": jsonl.lines,
    ".prom": openmetrics.lines,
}
#: That follow experiments, each with a module and an extra of its name, and the package that it needs.
TOOLS = {"wandb": "wandb", "mlflow": "mlflow", "tensorboard": "tensorboard.summary.writer.record_writer"}


@dataclass(frozen=True)
class Exported:
    """What was written, and what a reader must know of it: what was left out, a line each."""

    path: Path
    table: str
    rows: int
    runs: int
    summary: str
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["summary"]
        return {**facts, "schema": EXPORT_SCHEMA, "path": str(self.path)}


def export_file(paths: Sequence[Path], output: Path, table_name: str) -> Exported:
    """Write one table. Raises UsageError, before anything is read where that can be told by then."""
    table, suffix = find_table(table_name), output.suffix.lower()
    if suffix not in (".parquet", *_TEXTS):
        ends = f".parquet, {', '.join(_TEXTS)} (.prom is OpenMetrics text)"
        raise UsageError(f"{printable(str(output))} names no format: let it end in one of {ends}")
    if os.path.lexists(output) and not output.is_file():
        raise UsageError(f"cannot write {output}: it is {'a folder' if output.is_dir() else 'no regular file'}")
    if suffix == ".parquet":
        required("pyarrow.parquet", "data")
    found: Found = (read_runs if table.name == RUNS else read_entries)(paths, with_imported=True)
    tags, problems = tags_by_path(map(Path, found.paths()))
    if table.name == RUNS:
        rows = rows_of_runs(found.entries, tags)
    else:
        rows = rows_of(table, found.entries, tags, found.imported)
    count = write(output, table, rows)
    of_runs = counted(len(found.entries), "run")
    summary = of_runs if table.noun == "run" else f"{counted(count, table.noun)} of {of_runs}"
    warnings = (*found.warnings(), *problems)
    if table.name == IMPORTED:
        summary = f"{counted(count, 'row')}, {MARK}"
    elif found.imported:
        warnings += (f"{counted(len(found.imported), 'row')} {MARK}: not among these, but in --table {IMPORTED}",)
    return Exported(output, table.name, count, len(found.entries), summary, warnings)


def export_to(tool: str, paths: Sequence[Path], folder: Path) -> Exported:
    """Write a folder of another tool, which is made, or is there and empty. Raises UsageError as ``export_file``."""
    if tool not in TOOLS:
        raise UsageError(f"there is no tool {printable(tool)!r}{nearest(tool, TOOLS)}; there are {', '.join(TOOLS)}")
    required(TOOLS[tool], tool)
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder} is there already: name a new folder, or an empty one")
    found = read_entries(paths)
    tags, problems = tags_by_path(map(Path, found.paths()))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        import_module(f"suite.export.tools.{tool}").write(folder, given(found.entries, tags))
    count = len(found.entries)
    return Exported(folder, tool, count, count, f"{counted(count, 'run')} for {tool}", (*found.warnings(), *problems))


def write(output: Path, table: Table, rows: Iterable[Row]) -> int:
    """Replace a file at once; how many rows it has. The same rows give the same bytes. Raises UsageError."""
    suffix, count = output.suffix.lower(), itertools.count()
    passing = (row for row, _ in zip(rows, count, strict=False))
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name[:80]}.", dir=output.parent) as folder:
            draft = Path(folder) / "draft"
            if suffix == ".parquet":
                parquet.write(draft, table, passing)
            else:
                with draft.open("w", encoding="utf-8", newline="\n") as file:
                    file.writelines(_TEXTS[suffix](table, passing))
            os.replace(draft, output)
    return next(count)
