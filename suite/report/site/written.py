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


def made_of(words: Sequence[Any], bundles: Sequence[Surveyed]) -> str:
    """A digest of all that a site is made of: the words given, every bundle with the signature of its files, and the
    code."""
    code = code_key((*ROOMS, "report"), ("jinja2", "numpy"))
    return hashlib.sha256(code + repr((words, bundles)).encode(errors="surrogateescape")).hexdigest()


class LastTime:
    """What is kept of a site in the user's own cache, as pages that are published do not tell where results lie."""

    def __init__(self, path: Path) -> None:
        self._name = b"site 2 " + os.fsencode(path.resolve())
        database = Database(cache_folder())
        body = database.get(self._name)
        database.close()
        self._known: dict[str, Any] = json.loads(body) if body else {}

    @property
    def folders(self) -> list[Path]:
        """Those that it was made from; none where nothing is known."""
        here = Path.cwd()
        folders = map(Path, self._known.get("folders", ()))
        return [folder.relative_to(here) if folder.is_relative_to(here) else folder for folder in folders]

    def summary(self, made_of: str, manifest: str) -> Summary | None:
        """What was told of it, where it was made of the same and its ``manifest`` had this digest."""
        is_same = (self._known.get("made_of"), self._known.get("manifest")) == (made_of, manifest)
        return Summary(**self._known["summary"]) if is_same else None

    def keep(self, folders: Sequence[Path], made_of: str | None, manifest: str, summary: Summary) -> None:
        """``made_of``: null where a site of the same may be another one."""
        known = {"made_of": made_of, "manifest": manifest, "summary": asdict(summary)}
        body = {"folders": [str(folder.resolve()) for folder in folders], **known}
        database = Database(cache_folder())
        database.put(self._name, json.dumps(body).encode())
        database.close()
