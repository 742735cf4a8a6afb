"""One image, as Docker names it, in the words of the programs that Slurm's containers come from. Pure."""

from __future__ import annotations

import re

_DOCKER = "docker://"
#: as Docker tells a registry from the first part of a path: by a dot, a port, or this host
_REFERENCE = re.compile(
    r"((?:[A-Za-z0-9-]+[.:][A-Za-z0-9.:-]*|localhost)/)?([a-z0-9][a-z0-9._/-]*)(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?"
    r"(@sha256:[0-9a-f]{64})?"
)


def pyxis_image(image: str) -> str:
    """``[REGISTRY#]PATH[:TAG]``; a digest takes the tag's place. Paths of files, and enroot's own spelling, stay.

    enroot before 4 looks for ``REGISTRY/PATH`` on Docker Hub and takes what stands before ``@`` for a user.
    """
    name = image.removeprefix(_DOCKER)
    found = _REFERENCE.fullmatch(name)
    if found is None:
        return name
    registry, path, tag, digest = found.groups(default="")
    return f"{registry.replace('/', '#')}{path}{digest.replace('@', ':') or tag}"


def apptainer_image(image: str) -> str:
    """``docker://NAME``, without the tag where there is a digest: Apptainer refuses both. Paths of files and other
    sources (``oras://``, ``library://``) stay."""
    found = _REFERENCE.fullmatch(image.removeprefix(_DOCKER))
    if found is None:
        return image
    registry, path, tag, digest = found.groups(default="")
    return f"{_DOCKER}{registry}{path}{digest or tag}"
