"""What a site tells of itself when it was written, and how that is known again where nothing changed since."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.bundle.cache.code import ROOMS, code_key
from suite.bundle.cache.database import Database
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.survey import Surveyed
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted
from suite.spec.base import printable

SITE_SCHEMA = "suite/site/1"
_MOST_SHOWN = 10


@dataclass(frozen=True)
class Summary:
    """``changes`` of level: a line each, the latest first; ``series``: with their changes, for programs; ``told``: what
    a reader must know of the reading."""

    runs: int
    points: int
    regressions: int
    changes: list[str]
    series: list[dict[str, Any]]
    told: list[str]


@dataclass(frozen=True)
class WrittenSite:
    """What came of it. ``written`` and ``kept``: pages; ``read``: bundles that were read, of ``summary.runs``."""

    path: Path
    summary: Summary
    read: int
    written: int
    kept: int
    removed: int

    def lines(self) -> Iterator[str]:
        """For a reader: what was done, and each change of level, the latest first."""
        summary = self.summary
        for line in summary.changes[:_MOST_SHOWN]:
            yield printable(line)
        if len(summary.changes) > _MOST_SHOWN:
            yield f"and {len(summary.changes) - _MOST_SHOWN} more changes of level"
        read = f"{self.read:,} of them read now" if self.read < summary.runs else "all read now"
        yield (
            f"{counted(summary.runs, 'run')} ({read}), {summary.points:,} points, {len(summary.series):,} series, "
            f"{counted(len(summary.changes), 'change')} of level"
        )
        yield printable(f"wrote {self.path / 'index.html'}: {self.written} pages written, {self.kept} as they were")

    def warnings(self) -> list[str]:
        return [visible(line, 400) for line in self.summary.told]

    def as_json(self) -> dict[str, Any]:
        """For programs, with every change of level."""
        return {
            "schema": SITE_SCHEMA,
            "path": str(self.path),
            "runs": self.summary.runs,
            "runs_read": self.read,
            "pages": {"written": self.written, "kept": self.kept, "removed": self.removed},
            "regressions": self.summary.regressions,
            "told": self.summary.told,
            "series": self.summary.series,
        }


def pages_key() -> bytes:
    """Of the code that pages are made with."""
    return code_key((*ROOMS, "report"), ("jinja2", "numpy"))


class LastTime:
    """What was written the last time, kept in the user's own cache by all that it was made of: the words given, and
    every bundle with the signature of its files."""

    def __init__(self, path: Path, words: Sequence[Any], bundles: Sequence[Surveyed]) -> None:
        self._name = b"site as written " + os.fsencode(path.resolve())
        self._made_of = hashlib.sha256(
            pages_key() + repr((words, bundles)).encode(errors="surrogateescape")
        ).hexdigest()

    def summary(self, manifest: str) -> Summary | None:
        """Where that was made of the same, and its ``manifest`` had this digest; else null."""
        database = Database(cache_folder())
        body = database.get(self._name)
        database.close()
        try:
            known = json.loads(body) if body else {}
            is_same = known.get("made_of") == self._made_of and known["manifest"] == manifest
            return Summary(**known["summary"]) if is_same else None
        except (ValueError, TypeError, KeyError, AttributeError):  # its check holds, but not its content
            return None

    def keep(self, manifest: str, summary: Summary) -> None:
        body = {"made_of": self._made_of, "manifest": manifest, "summary": asdict(summary)}
        database = Database(cache_folder())
        database.put(self._name, json.dumps(body).encode())
        database.close()
