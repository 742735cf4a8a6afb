"""A site on disk: what a page is made of is remembered, so that only pages with something new are written."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.code import ROOMS, code_key
from suite.bundle.cache.database import Database
from suite.bundle.cache.place import cache_folder
from suite.bundle.evidence import digest_of_all
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted
from suite.report.site.feed import feed, regressions
from suite.report.site.gathering import Gathered, gather
from suite.report.site.history import Series, histories
from suite.report.site.pages import Site, change_title, compare_page, index_page, series_page
from suite.spec import foreign
from suite.spec.base import UsageError, printable

SITE_SCHEMA = "suite/site/1"
#: Lists what the site was made of and holds.
MANIFEST = "site.json"
_PAGE = re.compile(r"(?:index|compare)\.html|feed\.xml|series/[0-9a-f]{12}\.html")
TITLE = "History of measured throughput"
_MOST_TOLD = 10
_MOST_URL_CHARACTERS = 2000


@dataclass(frozen=True)
class WrittenSite:
    """What came of it. ``written`` and ``kept``: pages; ``read``: bundles that were read, of ``runs``."""

    path: Path
    series: tuple[Series, ...]
    runs: int
    read: int
    written: int
    kept: int
    removed: int
    told: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """For a reader: what was done, and each change of level, the latest first."""
        points = sum(len(one.points) for one in self.series)
        changes = [(one, change) for one in self.series for change in one.changes]
        changes.sort(key=lambda pair: -(pair[0].points[pair[1].after].started or 0.0))
        for series, change in changes[:_MOST_TOLD]:
            yield printable(f"{series.name} on {series.facts['machine']}: {change_title(series, change)}")
        if len(changes) > _MOST_TOLD:
            yield f"and {len(changes) - _MOST_TOLD} more changes of level"
        read = f"{self.read:,} of them read now" if self.read < self.runs else "all read now"
        yield f"{counted(self.runs, 'run')} ({read}), {points:,} points, {len(self.series):,} series, " + (
            f"{counted(len(changes), 'change')} of level"
        )
        yield printable(f"wrote {self.path / 'index.html'}: {self.written} pages written, {self.kept} as they were")

    def warnings(self) -> list[str]:
        return [visible(line, 400) for line in self.told]

    def as_json(self) -> dict[str, Any]:
        """For programs, with every change of level."""
        return {
            "schema": SITE_SCHEMA,
            "path": str(self.path),
            "runs": self.runs,
            "runs_read": self.read,
            "pages": {"written": self.written, "kept": self.kept, "removed": self.removed},
            "regressions": regressions(self.series),
            "told": list(self.told),
            "series": [_series_json(one) for one in self.series],
        }


def _series_json(series: Series) -> dict[str, Any]:
    return {
        "id": series.id,
        "name": series.name,
        "facts": dict(series.facts),
        "points": len(series.points),
        "runs": series.runs,
        "noise": series.noise,
        "changes": [
            {
                "direction": change.direction,
                "ratio": {"value": change.ratio.value, "low": change.ratio.low, "high": change.ratio.high},
                "probability": change.probability,
                "begins": _point_json(series, change.after),
                "earliest": _point_json(series, change.first),
                "latest": _point_json(series, change.last),
                "versions": [list(one) for one in change.versions],
            }
            for change in series.changes
        ],
    }


def _point_json(series: Series, place: int) -> dict[str, Any]:
    point = series.points[place]
    return {"folder": point.folder, "started": point.started, "runs": list(point.run_ids)}


def write_site(path: Path, folders: Sequence[Path], title: str | None = None, base: str | None = None) -> WrittenSite:
    """Make or extend the site in ``path`` from results folders and archives; without any from those it was made from
    before.

    Raises UsageError where ``path`` holds something else, a folder is none, there is no run, or nothing can be written.
    """
    before = _before(path)
    folders = folders or _remembered(path)
    with opened(folders) as readable:
        found = gather(readable.folders)
        found.told = list(map(readable.shown, found.told))
        series = histories(found, _names(folders, readable))
    if not found.runs:
        detail = f"; {found.told[0]}" if found.told else ""
        raise UsageError(f"no run to show in {', '.join(str(folder) for folder in folders)}{detail}")
    title = title or before.get("title") or TITLE
    base = base or before.get("url")
    site = Site(title, series, found.versions, tuple(found.told))
    try:
        pages, written = _write_pages(path, site, base, before.get("pages", {}))
        removed = _remove(path, [name for name in before.get("pages", {}) if name not in pages])
        body = {
            "schema": SITE_SCHEMA,
            "title": title,
            "url": base,
            "runs": len(found.runs),
            "digest": _digest(found),
            "pages": pages,
        }
        _replace(path / MANIFEST, json.dumps(body, indent=1, sort_keys=True) + "\n")
        _remember(path, folders)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or path}: {error.strerror or error}") from error
    return WrittenSite(
        path, series, len(found.runs), found.read, written, len(pages) - written, removed, tuple(found.told)
    )


def checked_url(text: str) -> str:
    """An address as somebody typed it, ending in a slash. Raises UsageError for what is none of the web."""
    parts = urlsplit(text) if len(text) <= _MOST_URL_CHARACTERS and text.isprintable() else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc or " " in text:
        raise UsageError(f"--url is an address such as https://example.org/bench/, not {printable(text)[:80]!r}")
    return text if text.endswith("/") else f"{text}/"


def _write_pages(
    path: Path, site: Site, base: str | None, before: dict[str, dict[str, str]]
) -> tuple[dict[str, dict[str, str]], int]:
    """Pages by name with digests of what they are made of and of their text; those that are as they were are kept."""
    (path / "series").mkdir(parents=True, exist_ok=True)
    pages: dict[str, dict[str, str]] = {}
    written = 0
    for name, facts, make in _planned(site, base):
        made_of = hashlib.sha256(code_key((*ROOMS, "report"), ("jinja2", "numpy")) + facts.encode(errors="replace"))
        known = before.get(name)
        if known and known["made_of"] == made_of.hexdigest() and _digest_on_disk(path / name) == known["text"]:
            pages[name] = known
            continue
        text = make()
        pages[name] = {"made_of": made_of.hexdigest(), "text": hashlib.sha256(text.encode()).hexdigest()}
        if not (known and _digest_on_disk(path / name) == pages[name]["text"]):
            _replace(path / name, text)
            written += 1
    return pages, written


def _planned(site: Site, base: str | None) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """Each page: its name, all that it is made of, and how."""
    whole = repr((site.title, site.told, [(one.id, one.points, one.lost, one.changes) for one in site.series]))
    versions = repr(sorted(site.versions))
    yield "index.html", whole, lambda: index_page(site)
    yield "compare.html", whole + versions, lambda: compare_page(site)
    yield "feed.xml", f"{base} {whole}", lambda: feed(site, base)
    for one in site.series:
        yield f"series/{one.id}.html", repr((site.title, one)), lambda one=one: series_page(site, one)  # type: ignore[misc]


def _before(path: Path) -> dict[str, Any]:
    """The site's own list, of one that is there; nothing of a folder that is empty or not there.

    Raises UsageError for a folder with something else, since pages of other names may lie there.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISDIR(status.st_mode) and not path.is_dir():
        raise UsageError(f"{path} is not a folder")
    try:
        text = foreign.read_text(path / MANIFEST, MANIFEST)
    except FileNotFoundError:
        if any(path.iterdir()):
            raise UsageError(
                f"{path} holds something else than a site: name a folder that is empty or not there"
            ) from None
        return {}
    try:
        body = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path / MANIFEST} is no JSON: remove it, and the site is made anew") from error
    schema = body.get("schema") if isinstance(body, dict) else None
    if schema != SITE_SCHEMA:
        raise UsageError(f"{path / MANIFEST} is of schema {ascii(schema)[:40]}; this version writes {SITE_SCHEMA}")
    return _checked(body)


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """What is as this version writes it: of a list that somebody changed the rest is as if it were not there."""
    pages = body.get("pages")
    kept: dict[str, Any] = {name: body[name] for name in ("title", "url") if isinstance(body.get(name), str)}
    if isinstance(pages, dict):
        kept["pages"] = {
            name: one
            for name, one in pages.items()
            if _PAGE.fullmatch(name)
            and isinstance(one, dict)
            and set(one) == {"made_of", "text"}
            and all(isinstance(value, str) for value in one.values())
        }
    return kept


def _names(given: Sequence[Path], readable: Opened) -> dict[Path, str]:
    """What pages call each folder: the last part of its path, and an archive by its file."""
    names = {}
    for path, folder in zip(given, readable.folders, strict=True):
        archive = readable.archive_of(folder)
        names[folder] = Path(archive.name).name if archive else path.resolve().name or "results"
    return names


def _remember(path: Path, folders: Sequence[Path]) -> None:
    """Of what a site was made, in the user's own cache: pages that are published do not tell where results lie."""
    database = Database(cache_folder())
    database.put(_memory(path), json.dumps([str(folder.resolve()) for folder in folders]).encode())
    database.close()


def _remembered(path: Path) -> list[Path]:
    """Raises UsageError where nothing is."""
    database = Database(cache_folder())
    body = database.get(_memory(path))
    database.close()
    try:
        folders = [Path(folder) for folder in json.loads(body)] if body else []
    except (ValueError, TypeError):
        folders = []
    if not folders:
        raise UsageError(f"which results? suite site {path} --from FOLDER (more than once for several)")
    here = Path.cwd()
    return [folder.relative_to(here) if folder.is_relative_to(here) else folder for folder in folders]


def _memory(path: Path) -> bytes:
    return b"site folders " + os.fsencode(path.resolve())


def _digest(found: Gathered) -> str | None:
    """Over the evidence of all runs, as `suite verify` prints it for the folders; null where a run has none."""
    known = [run.digest for run in found.runs if run.digest is not None]
    return digest_of_all(known) if known and len(known) == len(found.runs) else None


def _digest_on_disk(path: Path) -> str | None:
    try:
        return hashlib.sha256(foreign.read_bytes(path, path.name, foreign.EVENTS_BYTES)).hexdigest()
    except (FileNotFoundError, UsageError):
        return None


def _replace(path: Path, text: str) -> None:
    """At once: whoever looks at the site meanwhile sees the page before or the page after."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8", newline="\n")
    os.replace(draft, path)


def _remove(path: Path, names: Sequence[str]) -> int:
    for name in names:
        (path / name).unlink(missing_ok=True)
    return len(names)
