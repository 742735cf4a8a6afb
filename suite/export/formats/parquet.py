"""Parquet, by way of pyarrow, which is not installed with the suite: ``pip install 'rlhf-suite[data]'``."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from suite.export.columns import EXPORT_SCHEMA, Kind
from suite.export.tables import Row, Table
from suite.spec.optional import required

#: Rows that are in memory as pyarrow's at one time.
_ROWS = 50_000


def write(path: Path, table: Table, rows: Iterator[Row]) -> None:
    """Write a new file. Raises UsageError where pyarrow is not installed, and OSError.

    The same rows give the same bytes with the same version of pyarrow. Every column has a description and a unit in its
    metadata; the file's names the table and the version of its columns.
    """
    arrow, parquet = required("pyarrow", "data"), required("pyarrow.parquet", "data")
    types: dict[Kind, Any] = {
        "text": arrow.string(),
        "texts": arrow.list_(arrow.string()),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "boolean": arrow.bool_(),
        "time": arrow.timestamp("us", tz="UTC"),
    }
    fields = [
        arrow.field(one.name, types[one.kind], not one.required, {"description": one.meaning, "unit": one.unit})
        for one in table.columns
    ]
    schema = arrow.schema(fields, metadata={"schema": EXPORT_SCHEMA, "table": table.name})
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(rows, _ROWS)):
            writer.write_table(arrow.Table.from_pylist(some, schema=schema))
