"""Rows as data frames, with the types of the columns whatever the rows hold."""

from collections.abc import Sequence
from typing import Any

from suite.export.columns import Kind
from suite.export.tables import Row, find_table
from suite.spec.optional import required


def pandas_frame(table: str, rows: Sequence[Row]) -> Any:
    """Integers and booleans are pandas' nullable ones, a number that is null is NaN, and lists are objects.

    Raises UsageError where pandas is not installed.
    """
    pandas = required("pandas", "data")
    types: dict[Kind, str] = {
        "text": "string",
        "texts": "object",
        "integer": "Int64",
        "number": "float64",
        "boolean": "boolean",
        "time": "datetime64[us, UTC]",
    }
    kinds = {column.name: column.kind for column in find_table(table).columns}
    series = {name: pandas.Series([row[name] for row in rows], dtype=types[kind]) for name, kind in kinds.items()}
    return pandas.DataFrame(series)


def polars_frame(table: str, rows: Sequence[Row]) -> Any:
    """Raises UsageError where polars is not installed."""
    polars = required("polars", "data")
    types: dict[Kind, Any] = {
        "text": polars.String,
        "texts": polars.List(polars.String),
        "integer": polars.Int64,
        "number": polars.Float64,
        "boolean": polars.Boolean,
        "time": polars.Datetime("us", "UTC"),
    }
    schema = {column.name: types[column.kind] for column in find_table(table).columns}
    return polars.DataFrame(list(rows), schema=schema)
