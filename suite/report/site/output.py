"""A site on disk: only pages whose text is another one are written, and where nothing changed nothing is read."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.code import ROOMS, code_key
from suite.bundle.cache.database import Database
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.survey import Surveyed, survey
from suite.bundle.files import DamagedBundle, parse_object, replace_atomically, writing
from suite.bundle.walk import is_trial
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, few
from suite.spec import foreign
from suite.spec.base import UsageError, printable
from suite.spec.schema_files import not_read

SITE_SCHEMA = "suite/site/1"
#: Lists what the site was made of and holds.
MANIFEST = "site.json"
TITLE = "History of measured throughput"
_MOST_URL_CHARACTERS = 2000
_MOST_SHOWN = 10


@dataclass(frozen=True)
class WrittenSite:
    """``changes`` of level: a line each, the latest first; ``series``: with their changes, for programs; ``told``: what
    a reader must know of the reading. ``read``: bundles that were read, of ``runs``; ``written``, ``kept`` and
    ``removed``: pages."""

    path: Path
    runs: int
    points: int
    regressions: int
    changes: list[str]
    series: list[dict[str, Any]]
    told: list[str]
    read: int
    written: int
    kept: int
    removed: int

    def lines(self) -> Iterator[str]:
        """For a reader: what was done, and each change of level, the latest first."""
        yield from map(printable, few(self.changes, _MOST_SHOWN, "and {} more changes of level"))
        read = f"{self.read:,} of them read now" if self.read < self.runs else "all read now"
        yield (
            f"{counted(self.runs, 'run')} ({read}), {self.points:,} points, {len(self.series):,} series, "
            f"{counted(len(self.changes), 'change')} of level"
        )
        yield printable(f"wrote {self.path / 'index.html'}: {self.written} pages written, {self.kept} as they were")

    def warnings(self) -> list[str]:
        return [visible(line, 400) for line in self.told]

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SITE_SCHEMA,
            "path": str(self.path),
            "runs": self.runs,
            "runs_read": self.read,
            "pages": {"written": self.written, "kept": self.kept, "removed": self.removed},
            "regressions": self.regressions,
            "told": self.told,
            "series": self.series,
        }


def _made_of(words: Sequence[Any], bundles: Sequence[Surveyed]) -> str:
    """A digest of all that a site is made of: the words given, every bundle with the signature of its files, and the
    code."""
    code = code_key((*ROOMS, "report"), ("jinja2", "numpy"))
    return hashlib.sha256(code + repr((words, bundles)).encode(errors="surrogateescape")).hexdigest()


def _last_time(path: Path, now: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is kept of a site in the user's own cache, as pages that are published do not tell where results lie.
    ``now``: what is kept from now on."""
    name, database = b"site 3 " + os.fsencode(path.resolve()), Database(cache_folder())
    body = database.get(name)
    if now is not None:
        database.put(name, json.dumps(now).encode())
    database.close()
    return json.loads(body) if body else {}


def write_site(path: Path, folders: Sequence[Path], title: str | None = None, base: str | None = None) -> WrittenSite:
    """Make or extend the site in ``path`` from results folders and archives; without any from those it was made from
    before. Where neither these nor the site changed since, nothing is read and nothing is written.

    Raises UsageError where ``path`` holds something else, a folder is none, there is no run, or nothing can be written.
    """
    with writing(path):
        is_empty = not path.exists() or (path.is_dir() and not any(path.iterdir()))
        if not is_empty and not (path / MANIFEST).is_file():
            raise UsageError(f"{path} holds something else than a site: name a folder that is empty or new")
    last = _last_time(path)
    here, before_now = Path.cwd(), map(Path, last.get("folders", ()))
    folders = folders or [one.relative_to(here) if one.is_relative_to(here) else one for one in before_now]
    if not folders:
        raise UsageError(f"which results? suite site {path} --from FOLDER (more than once for several)")
    listed = _listed(path)
    title = title or listed.get("title", TITLE)
    base = base or listed.get("url")
    with opened(folders) as readable:
        bundles = [one for one in survey(readable.folders)[0] if not is_trial(one.path)]
        names = _names(folders, readable)
        whole = _made_of((title, base, [(str(folder), name) for folder, name in names.items()]), bundles)
        if not readable.archives and last.get("made_of") == whole and _is_on_disk(path, last["digests"]):
            return WrittenSite(path, **last["told"], read=0, written=0, kept=len(last["digests"]) - 1, removed=0)
        # a site that did not change needs none of it
        from suite.report.site.history import histories
        from suite.report.site.pages import made_pages, summary
        from suite.report.site.runs import gather

        found = gather(bundles, readable)
        series = histories(found.runs, names)
    if not found.runs:
        detail = f"; {found.told[0]}" if found.told else ""
        raise UsageError(f"no run to show in {', '.join(str(folder) for folder in folders)}{detail}")
    with writing(path):
        made, written = _write_pages(path, made_pages(title, found, series, base))
        gone = [file for file in (path / "series").iterdir() if _is_gone(file, made)]
        for file in gone:
            file.unlink()
    body = {"title": title, "url": base, "runs": len(found.runs), "digest": found.digest}
    text = json.dumps({"schema": SITE_SCHEMA, **body, "pages": made}, indent=1, sort_keys=True) + "\n"
    replace_atomically(path / MANIFEST, text)
    told = summary(found, series)
    now: dict[str, Any] = {"folders": [str(folder.resolve()) for folder in folders], "told": told}
    # made of nothing, where a site of the same may be another one
    now |= {"made_of": whole if found.is_kept else None, "digests": {**made, MANIFEST: _sha256(text)}}
    _last_time(path, now)
    return WrittenSite(path, **told, read=found.read, written=written, kept=len(made) - written, removed=len(gone))


def _listed(path: Path) -> dict[str, str]:
    """Title and address of the site that is there; nothing where its list cannot be read. Raises
    UsageError for that of another version."""
    try:
        body = parse_object(foreign.read_text(path / MANIFEST, MANIFEST), MANIFEST)
    except (FileNotFoundError, DamagedBundle):
        return {}
    if body.get("schema") != SITE_SCHEMA:
        raise UsageError(not_read(str(path / MANIFEST), body.get("schema"), SITE_SCHEMA))
    return {name: body[name] for name in ("title", "url") if isinstance(body.get(name), str)}


def checked_url(text: str) -> str:
    """An address as somebody typed it, ending in a slash. Raises UsageError for what is none of the web."""
    parts = urlsplit(text) if len(text) <= _MOST_URL_CHARACTERS and text.isprintable() else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc or " " in text:
        raise UsageError(f"--url is an address such as https://example.org/bench/, not {printable(text)[:80]!r}")
    return text if text.endswith("/") else f"{text}/"


def _write_pages(path: Path, made: Iterable[tuple[str, str]]) -> tuple[dict[str, str], int]:
    """The digests of all pages by name, and how many of these are others than before."""
    (path / "series").mkdir(parents=True, exist_ok=True)
    pages: dict[str, str] = {}
    written = 0
    for name, text in made:
        pages[name] = _sha256(text)
        if not _is_on_disk(path, {name: pages[name]}):
            replace_atomically(path / name, text)
            written += 1
    return pages, written


def _is_gone(file: Path, made: Mapping[str, str]) -> bool:
    """Whether it is a page of a series that is no more."""
    return re.fullmatch(r"[0-9a-f]{12}\.html", file.name) is not None and f"series/{file.name}" not in made


def _names(given: Sequence[Path], readable: Opened) -> dict[Path, str]:
    """What pages call each folder: the last part of its path, and an archive by its file."""
    names = {}
    for path, folder in zip(given, readable.folders, strict=True):
        archive = readable.archive_of(folder)
        names[folder] = Path(archive.name).name if archive else path.resolve().name or "results"
    return names


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _is_on_disk(path: Path, digests: Mapping[str, str]) -> bool:
    """Whether files are what their digests say."""
    try:
        found = (foreign.read_bytes(path / name, name, foreign.EVENTS_BYTES) for name in digests)
        return all(hashlib.sha256(data).hexdigest() == one for data, one in zip(found, digests.values(), strict=True))
    except (FileNotFoundError, UsageError):
        return False
