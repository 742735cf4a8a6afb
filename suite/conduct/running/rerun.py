"""Running a manifest again: the same work and layout, in fresh processes, here."""

from __future__ import annotations

import re
from pathlib import Path

from suite.bundle.derive import record_of
from suite.bundle.files import read_text
from suite.bundle.manifest_file import parse_manifest
from suite.bundle.record import Record
from suite.bundle.store import Bundle, find_bundles
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from suite.spec.resolve import run_id

#: bundles that a message about a whole results folder names
NAMED_BUNDLES = 3


def read_manifest(path: Path) -> tuple[Manifest, Record | None]:
    """A manifest from its file or its bundle, with the bundle's record where there is one.

    Raises UsageError when there is nothing at ``path`` and DamagedBundle when it cannot be used.
    """
    if path.is_dir():
        _require_bundle(path)
        bundle = Bundle(path)
        return bundle.manifest(), record_of(bundle)
    try:
        text = read_text(path, str(path))
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist; name a manifest.json or a bundle") from error
    manifest = parse_manifest(text, str(path))
    beside = Bundle(path.parent)
    has_events = path.name == "manifest.json" and (path.parent / "events").is_dir()
    return manifest, record_of(beside) if has_events else None


def _require_bundle(folder: Path) -> None:
    """Raises UsageError for a folder of bundles, naming some of them, and for any other folder without a manifest."""
    if (folder / "manifest.json").exists():
        return
    found = [bundle for bundle in find_bundles([folder]) if (bundle.path / "manifest.json").exists()]
    if not found:
        raise UsageError(f"{folder} holds no manifest.json and no bundle; name a bundle, or its manifest.json")
    named = ", ".join(str(bundle.path) for bundle in found[:NAMED_BUNDLES])
    more = f" and {len(found) - NAMED_BUNDLES} more" if len(found) > NAMED_BUNDLES else ""
    bundles = "1 bundle" if len(found) == 1 else f"{len(found)} bundles"
    raise UsageError(f"{folder} is a results folder with {bundles}; name the one to run once more: {named}{more}")


def next_repeat(manifest: Manifest, root: Path, image: str | None = None) -> Manifest:
    """The same manifest as one more repeat beside those that ``root`` holds already, on the host or of that image."""
    prefix = run_id(manifest.backend.name, manifest.size.name, manifest.layout.ranks, manifest.hash, 0, image)[:-1]
    taken = [0]
    for folder in root.glob(f"{prefix}*") if root.is_dir() else ():
        number = re.fullmatch(r"\d+", folder.name.removeprefix(prefix))
        taken += [int(number.group())] if number else []
    repeat = max(taken) + 1
    run = manifest.run.model_copy(update={"id": f"{prefix}{repeat}", "repeat": repeat})
    return manifest.model_copy(update={"run": run})


def require_same_stack(manifest: Manifest, found: dict[str, str]) -> None:
    """Raises UsageError when the interpreter's packages are not the manifest's: it would be another measurement."""
    other = [
        f"{package} {version} (here {found.get(package, 'missing')})"
        for package, version in manifest.stack.items()
        if found.get(package) != version
    ]
    if other:
        raise UsageError(
            f"the manifest was measured with {', '.join(other)}: install that stack and name it with --python, "
            "or measure this one with `suite run`"
        )
