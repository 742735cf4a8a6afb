"""Where the value of a column is in a run: ways to say it in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suite.bundle.facts import inner
from suite.bundle.record import Record
from suite.export.columns import Reader, Source
from suite.spec.manifest import Manifest


def of_record(read: Callable[[Record], Any]) -> Reader:
    return lambda source: read(source.entry.record)


def of_manifest(read: Callable[[Manifest], Any]) -> Reader:
    return lambda source: read(source.entry.manifest)


def part(*names: str) -> Reader:
    """A field of a part of the record, or of a part of that; null where the record lacks one of them."""

    def read(source: Source) -> Any:
        value: Any = source.entry.record
        for name in names:
            value = None if value is None else getattr(value, name)
        return value

    return read


def layout(field: str) -> Reader:
    return of_manifest(lambda manifest: getattr(manifest.layout, field))


def measure(field: str) -> Reader:
    return of_manifest(lambda manifest: getattr(manifest.measure, field))


def worker(*names: str) -> Reader:
    """A fact that rank 0 told of where it ran."""
    return of_record(lambda record: inner(record.environment.worker, *names))


def driver(*names: str) -> Reader:
    """A fact of environment.json."""
    return of_record(lambda record: inner(record.environment.driver, *names))


def predicted(*names: str) -> Reader:
    return of_record(lambda record: inner(record.predicted, *names))
