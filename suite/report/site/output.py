"""A site on disk: what a page is made of is remembered, so that only pages with something new are written."""

import hashlib
import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.database import Database
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.survey import survey
from suite.bundle.walk import is_trial
from suite.report.site.written import SITE_SCHEMA, LastTime, WrittenSite, pages_key
from suite.spec import foreign
from suite.spec.base import UsageError, printable

if TYPE_CHECKING:
    from suite.report.site.pages import Site

#: Lists what the site was made of and holds.
MANIFEST = "site.json"
_PAGE = re.compile(r"(?:index|compare)\.html|feed\.xml|series/[0-9a-f]{12}\.html")
TITLE = "History of measured throughput"
_MOST_URL_CHARACTERS = 2000


def write_site(path: Path, folders: Sequence[Path], title: str | None = None, base: str | None = None) -> WrittenSite:
    """Make or extend the site in ``path`` from results folders and archives; without any from those it was made from
    before. Where neither these nor the site changed since, nothing is read and nothing is written.

    Raises UsageError where ``path`` holds something else, a folder is none, there is no run, or nothing can be written.
    """
    before, manifest = _before(path)
    folders = folders or _remembered(path)
    title = title or before.get("title") or TITLE
    base = base or before.get("url")
    with opened(folders) as readable:
        bundles = [one for one in survey(readable.folders)[0] if not is_trial(one.path)]
        names = _names(folders, readable)
        last = LastTime(path, (title, base, [(str(folder), name) for folder, name in names.items()]), bundles)
        same = last.summary(manifest) if manifest and not readable.archives else None
        pages = before.get("pages", {})
        if same and all(_digest_on_disk(path / name) == page["text"] for name, page in pages.items()):
            return WrittenSite(path, same, read=0, written=0, kept=len(pages), removed=0)
        from suite.report.site.making import make_site  # a site that did not change needs none of it

        found, site, summary = make_site(bundles, names, readable, title)
    if not summary.runs:
        detail = f"; {summary.told[0]}" if summary.told else ""
        raise UsageError(f"no run to show in {', '.join(str(folder) for folder in folders)}{detail}")
    try:
        pages, written = _write_pages(path, site, base, before.get("pages", {}))
        removed = [name for name in before.get("pages", {}) if name not in pages]
        for name in removed:
            (path / name).unlink(missing_ok=True)
        body = {
            "schema": SITE_SCHEMA,
            "title": title,
            "url": base,
            "runs": summary.runs,
            "digest": found.digest,
            "pages": pages,
        }
        text = json.dumps(body, indent=1, sort_keys=True) + "\n"
        _replace(path / MANIFEST, text)
        _remember(path, folders)
        if found.is_kept:
            last.keep(_sha256(text), summary)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or path}: {error.strerror or error}") from error
    return WrittenSite(path, summary, found.read, written, len(pages) - written, len(removed))


def checked_url(text: str) -> str:
    """An address as somebody typed it, ending in a slash. Raises UsageError for what is none of the web."""
    parts = urlsplit(text) if len(text) <= _MOST_URL_CHARACTERS and text.isprintable() else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc or " " in text:
        raise UsageError(f"--url is an address such as https://example.org/bench/, not {printable(text)[:80]!r}")
    return text if text.endswith("/") else f"{text}/"


def _write_pages(
    path: Path, site: "Site", base: str | None, before: dict[str, dict[str, str]]
) -> tuple[dict[str, dict[str, str]], int]:
    """Pages by name with digests of what they are made of and of their text; those that are as they were are kept."""
    from suite.report.site.making import planned

    (path / "series").mkdir(parents=True, exist_ok=True)
    pages: dict[str, dict[str, str]] = {}
    written = 0
    for name, facts, make in planned(site, base):
        made_of = hashlib.sha256(pages_key() + facts.encode(errors="replace"))
        known = before.get(name)
        if known and known["made_of"] == made_of.hexdigest() and _digest_on_disk(path / name) == known["text"]:
            pages[name] = known
            continue
        text = make()
        pages[name] = {"made_of": made_of.hexdigest(), "text": _sha256(text)}
        if not (known and _digest_on_disk(path / name) == pages[name]["text"]):
            _replace(path / name, text)
            written += 1
    return pages, written


def _before(path: Path) -> tuple[dict[str, Any], str]:
    """The site's own list and the digest of its text, of one that is there; nothing of a folder that is empty or not
    there.

    Raises UsageError for a folder with something else, since pages of other names may lie there.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return {}, ""
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
        return {}, ""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path / MANIFEST} is no JSON: remove it, and the site is made anew") from error
    schema = body.get("schema") if isinstance(body, dict) else None
    if schema != SITE_SCHEMA:
        raise UsageError(f"{path / MANIFEST} is of schema {ascii(schema)[:40]}; this version writes {SITE_SCHEMA}")
    return _checked(body), _sha256(text)


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
