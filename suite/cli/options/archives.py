"""Files of `suite pack` where a command takes a bundle."""

from __future__ import annotations

from pathlib import Path

_NAMED = 3


def unpacked_path(path: Path) -> Path:
    """A bundle as it is; one of an archive, unpacked until the command ends.

    Raises UsageError where an archive has several and none is named, and UnsafeArchive.
    """
    from suite.bundle.archive.opening import opened
    from suite.cli.exits import until_end
    from suite.spec.base import UsageError

    places = until_end(opened([path]))
    found = places.folders[0]
    if places.archives and not (found / "manifest.json").is_file():
        runs = places.archives[0].index.runs
        named = ", ".join(f"{places.archives[0].name}:{run.path}" for run in runs[:_NAMED])
        more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
        raise UsageError(f"{path} holds {len(runs)} runs; name the one to run again: {named}{more}")
    return found
