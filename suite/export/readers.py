"""Where the value of a column is in a run: ways to say it in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suite.bundle.facts import inner
from suite.bundle.record import Record
from suite.export.columns import Reader, Source


def of_record(read: Callable[[Record], Any]) -> Reader:
    return lambda source: read(source.entry.record)


def part(name: str, field: str) -> Reader:
    """A field of a part of the record; null where the record lacks the part."""

    def read(source: Source) -> Any:
        whole = getattr(source.entry.record, name)
        return None if whole is None else getattr(whole, field)

    return read


def layout(field: str) -> Reader:
    return lambda source: getattr(source.entry.manifest.layout, field)


def worker(*names: str) -> Reader:
    """A fact that rank 0 told of where it ran."""
    return lambda source: inner(source.entry.record.environment.worker, *names)


def driver(*names: str) -> Reader:
    """A fact of environment.json."""
    return lambda source: inner(source.entry.record.environment.driver, *names)


def measure(field: str) -> Reader:
    return lambda source: getattr(source.entry.manifest.measure, field)


def predicted(*names: str) -> Reader:
    return lambda source: inner(source.entry.record.predicted, *names)
