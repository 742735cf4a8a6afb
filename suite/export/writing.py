"""One file of one table, in the format that its name ends in: whole, or not there."""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from suite.bundle.files import writing
from suite.export.formats import csv, jsonl, openmetrics, parquet
from suite.export.tables import Row, Table
from suite.spec.base import UsageError, printable
from suite.spec.optional import required

#: A file's lines, of the formats that are text.
Lines = Callable[[Table, Iterable[Row]], Iterator[str]]
_TEXTS: dict[str, Lines] = {".csv": csv.lines, ".jsonl": jsonl.lines, ".prom": openmetrics.lines}
SUFFIXES = (".parquet", *_TEXTS)


def check_output(output: Path) -> None:
    """Before anything is read. Raises UsageError for a name without a format, a folder, or a package that lacks."""
    if output.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"{printable(str(output))} names no format: let it end in one of {', '.join(SUFFIXES)} "
            "(.prom is OpenMetrics text)"
        )
    if os.path.lexists(output) and not output.is_file():
        raise UsageError(f"cannot write {output}: it is {'a folder' if output.is_dir() else 'no regular file'}")
    if output.suffix.lower() == ".parquet":
        required("pyarrow.parquet", "data")


def write(output: Path, table: Table, rows: Iterable[Row]) -> int:
    """Replace ``output`` at once, and give back how many rows it has; the same rows give the same bytes.

    Raises UsageError when it cannot be written.
    """
    check_output(output)
    suffix, count = output.suffix.lower(), itertools.count()
    counted = (row for row, _ in zip(rows, count, strict=False))
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name[:80]}.", dir=output.parent) as folder:
            draft = Path(folder) / "draft"
            if suffix == ".parquet":
                parquet.write(draft, table, counted)
            else:
                with draft.open("w", encoding="utf-8", newline="\n") as file:
                    file.writelines(_TEXTS[suffix](table, counted))
            os.replace(draft, output)
    return next(count)
