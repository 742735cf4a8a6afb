"""The base of Debian's packages alone, which no registry has: it is made here, where the runtime has it not."""

import subprocess

from docker import APIClient

from suite.images.project import Project
from suite.spec.base import UsageError
from suite.spec.images import Image

SCRIPT = "requirements/images/base.sh"
#: a base's day, of packages as the archive has them: such a base is made for each build
TODAY = "today"


def made_base(image: Image, day: str | None) -> str:
    """Name of an image's base, of packages of that day; None: of the catalogue's day."""
    if day is None or not image.base.made_here:
        return image.base.pinned
    return f"{image.base.reference.rpartition('-')[0]}-{day or TODAY}"


def has_base(api: APIClient, name: str) -> bool:
    """Whether the runtime has it, and nothing can have changed in it."""
    return not name.endswith(f"-{TODAY}") and bool(api.images(name))


def make_base(api: APIClient, project: Project, name: str) -> None:
    """Make the base of this name. Raises UsageError where that does not work."""
    repository, _, tag = name.partition(":")
    day = tag.rpartition("-")[2]
    archive = project.root / "build" / "images" / "base.tar"
    command = ("bash", str(project.root / SCRIPT), "" if day == TODAY else day, str(archive))
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
            raise UsageError(f"{SCRIPT} cannot make {name}: {reason}; name another base with --base-image")
        api.import_image_from_file(str(archive), repository, tag)
    finally:
        archive.unlink(missing_ok=True)
