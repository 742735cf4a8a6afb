"""Words that users give runs, kept beside the bundles: no file of a bundle changes by them, and no digest.

``<folder>/.tags/<run id>.json`` beside ``<folder>/<run id>``: the folder is hidden, so that nobody looks for bundles in
it. A run that is done again under its id keeps its tags.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from suite.bundle.files import DamagedBundle, locked, parse_object, replace_atomically, writing
from suite.spec.base import UsageError
from suite.spec.foreign import read_text

TAGS_SCHEMA = "suite/tags/1"
FOLDER = ".tags"
TAG = re.compile(r"\w[\w.+-]{0,63}")
MOST_TAGS = 50
_MOST_BYTES = 1 << 16


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Each once, sorted. Raises UsageError for what is no tag."""
    found = sorted(set(tags))
    for tag in found:
        if not TAG.fullmatch(tag):
            raise UsageError(
                f"{ascii(tag)[:90]} is no tag: up to 64 letters, digits and _ . + -, the first no . + or -"
            )
    return tuple(found)


def tags_of(bundle: Path) -> tuple[str, ...]:
    """Of one bundle. Raises UsageError where its file of tags is none."""
    path = _file(bundle)
    try:
        body = parse_object(read_text(path, str(path), _MOST_BYTES), str(path))
    except FileNotFoundError:
        return ()
    except DamagedBundle:
        body = {}
    tags = body.get("tags") if body.get("schema") == TAGS_SCHEMA else None
    if not isinstance(tags, list) or not all(isinstance(tag, str) and TAG.fullmatch(tag) for tag in tags):
        raise UsageError(f"{path} is no file of tags: remove it, and give the run its tags again")
    return tuple(sorted(set(tags)))


def tags_by_path(bundles: Iterable[Path]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Of the bundles that have any, by path as it is given; and a line for each file of tags that cannot be used."""
    by_folder: dict[str, list[Path]] = defaultdict(list)
    for bundle in bundles:
        by_folder[os.path.dirname(os.path.abspath(bundle))].append(bundle)
    found: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    for folder, members in by_folder.items():
        try:
            names = frozenset(os.listdir(os.path.join(folder, FOLDER)))
        except OSError:
            continue
        for bundle in members:
            if _file(bundle).name in names:
                try:
                    found[bundle.as_posix()] = tags_of(bundle)
                except UsageError as error:
                    problems.append(str(error))
    return {path: tags for path, tags in found.items() if tags}, problems


def change_tags(bundle: Path, add: Collection[str], remove: Collection[str]) -> tuple[str, ...]:
    """The tags that a bundle has then. Raises UsageError for what is no tag, too many, or not to be written."""
    add, remove = check_tags(add), check_tags(remove)
    path = _file(bundle)
    with _turn(path.parent):
        tags = tuple(sorted((set(tags_of(bundle)) | set(add)) - set(remove)))
        if len(tags) > MOST_TAGS:
            raise UsageError(f"{bundle} would have {len(tags)} tags, more than the {MOST_TAGS} that a run can have")
        if tags:
            replace_atomically(path, json.dumps({"schema": TAGS_SCHEMA, "run": path.stem, "tags": tags}) + "\n")
        else:
            forget_tags(bundle)
    return tags


def forget_tags(bundle: Path) -> None:
    """Of a run that is no more, or has none any more. Raises UsageError when its file cannot be removed."""
    path = _file(bundle)
    if os.path.lexists(path):
        with writing(path):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()  # unless there are others


def _file(bundle: Path) -> Path:
    whole = Path(os.path.abspath(bundle))
    return whole.parent / FOLDER / f"{whole.name}.json"


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Nobody else changes tags in this folder meanwhile."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = locked(folder, os.O_RDONLY | os.O_DIRECTORY, wait=True)
    try:
        yield
    finally:
        os.close(descriptor)
