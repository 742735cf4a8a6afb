"""The table of other tools' logs: a row each, marked in every row as imported and not measured here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from suite.bundle.imported.record import MARK
from suite.bundle.imported.timers import Tool
from suite.export.columns import Column, Kind, part
from suite.export.keys import EXPORT_SCHEMA
from suite.spec.phases import ALL

_GIVEN = "told by the importer"


def _columns() -> Iterator[Column]:
    yield Column("schema", "text", "", "version of the columns", lambda source: EXPORT_SCHEMA, True, (EXPORT_SCHEMA,))
    yield Column("mark", "text", "", "what the row is", part("mark"), True, (MARK,))
    yield Column("id", "text", "", "of the import", part("id"), True)
    yield Column("path", "text", "", "of its folder, as it was found", lambda source: source.entry.path, True)
    tool = "that wrote the log"
    yield Column("tool", "text", "", tool, part("tool"), True, get_args(Tool))
    yield Column("model", "text", "", _GIVEN, part("told", "model"), True)
    yield Column("devices", "integer", "", f"of the run in all, {_GIVEN}", part("told", "devices"), True)
    known: dict[str, tuple[str, Kind, str]] = {
        "device": ("device_name", "text", "what the devices are"),
        "algorithm": ("algorithm", "text", "its name"),
        "tool_version": ("tool_version", "text", "of the tool"),
        "source": ("source", "text", "where the log was published"),
        "note": ("note", "text", "what else a reader must know"),
    }
    for field, (name, kind, meaning) in known.items():
        yield Column(name, kind, "", f"{meaning}, {_GIVEN}; null: not told", part("told", field))
    yield Column("log_sha256", "text", "", "of the log in the folder", part("log", "sha256"), True)
    yield Column("log_bytes", "integer", "bytes", "of the log in the folder", part("log", "bytes"), True)
    yield Column("digest", "text", "", "SHA-256 over the folder's evidence", lambda source: source.entry.digest, True)
    for name, meaning in {
        "found": "with a time in the log",
        "warmup": "left out at the start, as the importer said",
        "counted": "those figures are of",
    }.items():
        yield Column(f"steps_{name}", "integer", "", f"steps {meaning}", part("steps", name), True)
    meaning = "mean of the counted steps, by the tool's own timer"
    yield Column("step_seconds", "number", "seconds", meaning, part("step_seconds"), True)
    for name, unit in {
        "samples_per_second": "samples/s",
        "tokens_per_second": "tokens/s",
        "tokens_per_second_per_device": "tokens/s",
    }.items():
        meaning = "all work over all time of the counted steps; null: neither log nor importer tells the work"
        yield Column(name, "number", unit, meaning, part("throughput", name))
    for name in ("samples", "prompt_tokens", "response_tokens", "total_tokens"):
        unit = "tokens" if name.endswith("_tokens") else ""
        yield Column(name, "number", unit, "of a step, mean; null: not known", part("counts", name))
        meaning = f"where `{name}` is from; null: not known"
        sources = ("the log", _GIVEN, "computed from the log")
        yield Column(f"{name}_from", "text", "", meaning, part("counts", "sources", name), values=sources)
    for phase in ALL:
        meaning = f"of a step in {phase.name}, by the tool's own timers; null: not told"
        yield Column(f"{phase.name}_seconds", "number", "seconds", meaning, part("phases", phase.name, "seconds"))
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        meaning = "the largest of the counted steps, as the tool logged it; null: not told"
        yield Column(name, "integer", "bytes", meaning, part("memory", name))
    notes = "what a reader of the figures must know"
    yield Column("notes", "texts", "", notes, part("notes"), True)
    meaning = "that the user gave it (`suite runs tag`), sorted"
    yield Column("tags", "texts", "", meaning, lambda source: source.tags, True)


IMPORTED_COLUMNS: tuple[Column, ...] = tuple(_columns())
