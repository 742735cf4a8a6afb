"""Published measurements as the planner reads them: one entry per configuration, or the reason why there is none."""

import csv
import hashlib
import math
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.spec.base import UsageError
from suite.spec.foreign import DOCUMENT_BYTES, read_bytes
from tools.planner.entries import Entry, Unusable, entry_of, without_commas

#: In all files together.
_MOST_ROWS = 100_000
_RECIPES = "nemo_rl_recipes.csv"
#: Metrics that are read; what a table derives from them is not.
METRICS = ("step_time", "tokens_per_sec", "tokens_per_sec_per_gpu", "peak_memory_gib", "fits", "hw_tflops_per_gpu")
#: Units beside seconds, tokens per second and GiB in which a value may be given.
_UNITS = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("ktokens/s", "ktokens/s/gpu", "k tokens/s", "k tokens/s/gpu"), 1e3),
    **dict.fromkeys(("mib", "mib/gpu"), 2.0**-10),
    **dict.fromkeys(("gb", "gb/gpu", "gb (1e9)"), 1e9 / 2**30),
}


#: Cells and measured values by source and configuration.
Configurations = dict[tuple[str, str], tuple[dict[str, str], dict[str, float]]]


@dataclass(frozen=True)
class LeftOut:
    """A configuration that is not used, and why."""

    source: str
    config: str
    reason: str


@dataclass
class Collection:
    """What was read from files: usable entries in file order, and the rest with reasons."""

    entries: list[Entry] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    digest: str = ""


def read_published(paths: Sequence[Path]) -> Collection:
    """Every configuration of the files, in the columns of the published format.

    Odd cells are unknown, odd rows are left out with a reason; nothing but an unreadable file stops it. Raises
    UsageError for a file that cannot be read or that has no header with ``config_id`` and ``metric``.
    """
    collection, content = Collection(), hashlib.sha256()
    left = _MOST_ROWS
    for path in paths:
        left -= _read_file(path, table_text(path), collection, left)
    for entry in collection.entries:
        content.update(
            repr((entry.source, entry.config, entry.step_seconds, entry.peak_memory_bytes, entry.fits)).encode()
        )
    collection.digest = content.hexdigest()
    return collection


def csv_files(paths: Iterable[Path]) -> list[Path]:
    """The files named, and those of the folders named, in order.

    Raises UsageError for what is not there, and for a link in a folder, which may lead anywhere.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.csv"))
            link = next((each for each in inside if each.is_symlink()), None)
            if link is not None:
                raise UsageError(f"{link} is a symbolic link; name the file that it leads to")
            found += inside
        elif os.path.lexists(path):
            found.append(path)
        else:
            raise UsageError(f"there is no file or folder {path}")
    return found


def rl_files(paths: Iterable[Path]) -> list[Path]:
    """Files that may hold RL iterations: those named, those of folders and of their folder ``rl``, and NeMo-RL's
    recipes beside a named file. Raises UsageError as ``csv_files``."""
    found: list[Path] = []
    for path in paths:
        found += csv_files([path])
        if (path / "rl").is_dir():
            found += csv_files([path / "rl"])
        elif not path.is_dir():
            beside = (path.with_name(_RECIPES), path.parent / "rl" / _RECIPES)
            found += [recipes for recipes in beside if recipes.is_file() and not recipes.is_symlink()]
    return list(dict.fromkeys(found))


def is_rl(cells: Mapping[str, str]) -> bool:
    """Whether a row is of an RL iteration or of a part of one: it has the columns, or NeMo-RL's notes."""
    return "algorithm" in cells or is_nemo_row(cells)


def is_nemo_row(cells: Mapping[str, str]) -> bool:
    """A row of NeMo-RL's performance page, which prints lengths and layout in its notes."""
    return "nemo" in cells.get("framework", "").lower() and "avg gen seq len" in cells.get("notes", "")


def table_text(path: Path) -> str:
    """The text of a table that somebody published. Raises UsageError for what is no file of at most 16 MiB."""
    data = read_bytes(path, str(path), DOCUMENT_BYTES, by_user=True)
    return data.decode("utf-8-sig", errors="replace").replace("\0", "")


def _read_file(path: Path, text: str, collection: Collection, most: int) -> int:
    """How many rows the file has. Raises UsageError for more than ``most``."""
    reader = csv.DictReader(text.splitlines(keepends=True), restkey="", restval="")
    try:
        header = set(reader.fieldnames or ())
    except csv.Error as error:
        raise UsageError(f"{path} is not CSV: its header cannot be read: {error}") from error
    if "algorithm" in header or {"recipe", "release"} <= header:
        return 0  # of RL iterations, which have a reader of their own
    if not {"config_id", "metric", "value"} <= header:
        raise UsageError(f"{path} is not in the published format: columns config_id, metric and value are needed")
    found: Configurations = {}
    count = 0
    try:
        for count, row in enumerate(reader, start=1):
            if count > most:
                raise UsageError(f"{path}: more than {_MOST_ROWS} rows in all; check a part of them")
            cells = cells_of(row)
            if not cells.get("config_id"):
                source = cells.get("source_id") or path.stem
                collection.left_out.append(LeftOut(source, "?", "a row without config_id"))
            elif not is_nemo_row(cells):
                take(found, path, cells, METRICS)
    except csv.Error as error:
        collection.left_out.append(LeftOut(path.stem, f"line {reader.line_num}", f"not CSV from here on: {error}"))
    for key, (cells, metrics) in found.items():
        try:
            collection.entries.append(entry_of(*key, cells, metrics))
        except Unusable as reason:
            collection.left_out.append(LeftOut(*key, str(reason)))
    return count


def cells_of(row: Mapping[str | None, Any]) -> dict[str, str]:
    """The cells of a row under their titles; what stands beyond the last title is none."""
    return {name: cell.strip() for name, cell in row.items() if name and isinstance(cell, str)}


def take(found: Configurations, path: Path, cells: dict[str, str], wanted: Container[str]) -> None:
    """A row's value among those of its configuration, where its metric is wanted: of several the first."""
    key = (cells.get("source_id") or path.stem, cells["config_id"])
    _, metrics = found.setdefault(key, (cells, {}))
    metric, value = cells.get("metric", ""), measured(cells.get("value", ""), cells.get("unit", ""))
    if metric in wanted and value is not None and (value > 0 or metric == "fits"):
        metrics.setdefault(metric, value)


def measured(text: str, unit: str) -> float | None:
    """A measured value in seconds, tokens per second or GiB; ``None`` for what is no finite number.

    Thousands may be set apart by commas. A unit that is not known is taken for the metric's own.
    """
    try:
        value = float(without_commas(text))
    except ValueError:
        return {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}.get(text.lower())
    if not math.isfinite(value):
        return None
    return value * _UNITS.get(unit.strip().lower(), 1.0)
