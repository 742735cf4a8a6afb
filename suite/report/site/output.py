"""A site on disk: only pages whose text is another one are written, and where nothing changed nothing is read."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.code import ROOMS, code_key
from suite.bundle.cache.database import Database
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.survey import Surveyed, survey
from suite.bundle.files import DamagedBundle, parse_object, writing
from suite.bundle.walk import is_trial
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted
from suite.spec import foreign
from suite.spec.base import UsageError, printable

SITE_SCHEMA = "suite/site/1"
#: Lists what the site was made of and holds.
MANIFEST = "site.json"
_PAGE = re.compile(r"(?:index|compare)\.html|feed\.xml|series/[0-9a-f]{12}\.html")
TITLE = "History of measured throughput"
_MOST_URL_CHARACTERS = 2000
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
    """``written``, ``kept`` and ``removed``: pages; ``read``: bundles that were read, of ``summary.runs``."""

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


def _made_of(words: Sequence[Any], bundles: Sequence[Surveyed]) -> str:
    """A digest of all that a site is made of: the words given, every bundle with the signature of its files, and the
    code."""
    code = code_key((*ROOMS, "report"), ("jinja2", "numpy"))
    return hashlib.sha256(code + repr((words, bundles)).encode(errors="surrogateescape")).hexdigest()


def _last_time(path: Path, now: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is kept of a site in the user's own cache, as pages that are published do not tell where results lie.
    ``now``: what is kept from now on."""
    name, database = b"site 2 " + os.fsencode(path.resolve()), Database(cache_folder())
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
    before, manifest = _before(path)
    pages: dict[str, str] = before.get("pages", {})
    last = _last_time(path)
    here, before_now = Path.cwd(), map(Path, last.get("folders", ()))
    folders = folders or [one.relative_to(here) if one.is_relative_to(here) else one for one in before_now]
    if not folders:
        raise UsageError(f"which results? suite site {path} --from FOLDER (more than once for several)")
    title = title or before.get("title") or TITLE
    base = base or before.get("url")
    with opened(folders) as readable:
        bundles = [one for one in survey(readable.folders)[0] if not is_trial(one.path)]
        names = _names(folders, readable)
        whole = _made_of((title, base, [(str(folder), name) for folder, name in names.items()]), bundles)
        is_same = not readable.archives and (last.get("made_of"), last.get("manifest")) == (whole, manifest)
        if is_same and all(_digest_on_disk(path / name) == digest for name, digest in pages.items()):
            return WrittenSite(path, Summary(**last["summary"]), read=0, written=0, kept=len(pages), removed=0)
        from suite.report.site.pages import made_pages, make_site  # a site that did not change needs none of it

        found, site, summary = make_site(bundles, names, readable, title)
    if not summary.runs:
        detail = f"; {summary.told[0]}" if summary.told else ""
        raise UsageError(f"no run to show in {', '.join(str(folder) for folder in folders)}{detail}")
    with writing(path):
        made, written = _write_pages(path, made_pages(site, base))
        removed = pages.keys() - made.keys()
        for name in removed:
            (path / name).unlink(missing_ok=True)
        body = {"schema": SITE_SCHEMA, "title": title, "url": base, "runs": summary.runs, "digest": found.digest}
        text = json.dumps({**body, "pages": made}, indent=1, sort_keys=True) + "\n"
        _replace(path / MANIFEST, text)
        # made of nothing, where a site of the same may be another one
        told = {"made_of": whole if found.is_kept else None, "manifest": _sha256(text), "summary": asdict(summary)}
        _last_time(path, {"folders": [str(folder.resolve()) for folder in folders], **told})
    return WrittenSite(path, summary, found.read, written, len(made) - written, len(removed))


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
        if _digest_on_disk(path / name) != pages[name]:
            _replace(path / name, text)
            written += 1
    return pages, written


def _before(path: Path) -> tuple[dict[str, Any], str]:
    """The list of the site that is there, and the digest of its text; empty where there is none.

    Raises UsageError for a folder with something else, since pages of other names may lie there.
    """
    listed = path / MANIFEST
    try:
        text = foreign.read_text(listed, str(listed))
        body = parse_object(text, str(listed))
    except FileNotFoundError:
        if path.is_dir() and any(path.iterdir()):
            raise UsageError(f"{path} holds something else than a site: name a folder that is empty or new") from None
        return {}, ""
    except DamagedBundle as error:
        raise UsageError(f"{error}: remove it, and the site is made again") from error
    if body.get("schema") != SITE_SCHEMA:
        raise UsageError(f"{listed} is of schema {ascii(body.get('schema'))[:40]}; this version writes {SITE_SCHEMA}")
    # of a list that somebody changed what is not as this version writes it is as if it were not there
    pages = body.get("pages")
    kept: dict[str, Any] = {name: body[name] for name in ("title", "url") if isinstance(body.get(name), str)}
    if isinstance(pages, dict):
        kept["pages"] = {name: digest for name, digest in pages.items() if _PAGE.fullmatch(name)}
    return kept, _sha256(text)


def _names(given: Sequence[Path], readable: Opened) -> dict[Path, str]:
    """What pages call each folder: the last part of its path, and an archive by its file."""
    names = {}
    for path, folder in zip(given, readable.folders, strict=True):
        archive = readable.archive_of(folder)
        names[folder] = Path(archive.name).name if archive else path.resolve().name or "results"
    return names


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
