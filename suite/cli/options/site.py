"""A site file: what its user always says of a cluster, by the names of the options, in the place of those not given.

It is checked whole before it counts.
"""

import os
from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from suite.cli.options.cluster import Nodes
from suite.cli.options.options_file import mapping, read_options, shown, text_of, words_of
from suite.cli.options.work import Work
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.spec.base import UsageError
from suite.spec.fields import declared
from suite.spec.images import images_of
from suite.spec.names import nearest
from suite.spec.terminal import note

_IMAGE_FILES = (".sqsh", ".sif")
#: what of the cluster's nodes belongs to the site, not to a measurement; the launcher's own options all do
OF_NODES = ("gpu", "gpus_per_node", "image", "python", "stack", "env", "mount", "require_idle")
#: images by name, which `--image NAME` means and which are taken for the backends of the catalogue's image of that name
IMAGES = "images"
NO_FILE = "none"
#: under which a command keeps what its site file says
_KEPT = "suite.site"


class Site(NamedTuple):
    """What a file says of a launcher: options as words of the command line, and images by their names."""

    words: list[str]
    images: dict[str, str]


def site_words(context: Any, launcher: str, given: Container[str]) -> list[str]:
    """What the site file says of this launcher, where the command line says nothing; entries of an option that may be
    repeated come before its own. ``given``: options of the command line. Raises UsageError.
    """
    file = find_site(context.params["site"])
    if file is None:
        return []
    left_out = {
        param.name
        for param in _params(launcher)
        if param.name in given and (param.name == "python" or not param.multiple)
    }
    if context.params["preset"] is not None and not context.params["nodes"]:
        left_out.add("gpus_per_node")  # a preset has nodes of its own
    found = read_site(file, launcher, left_out)
    context.meta[_KEPT] = file, found
    return found.words


def with_site(context: Any, work: Work, nodes: Nodes) -> Nodes:
    """The nodes with the image that is meant; what the site file gave goes to standard error. Raises UsageError."""
    file, found = context.meta.get(_KEPT, (None, Site([], {})))
    image, told = _image(nodes.image, work, found.images), [*map(_told, found.words)]
    if image != nodes.image and image in found.images.values():
        told.append(f"--image {image}")
    if told:
        note(f"note: from {file}: {', '.join(told)}")
    return nodes if image == nodes.image else replace(nodes, image=image)


def _told(word: str) -> str:
    """Of a variable the name alone: its value may be a secret."""
    option, _, value = word.partition("=")
    return f"{option} {value.partition('=')[0] if option == '--env' else value}".rstrip()


def _image(given: str | None, work: Work, images: dict[str, str]) -> str | None:
    """One of the site's by its name, a file by its whole path, else the one that the site has for all of the backends.
    Raises UsageError where it has one for some of them alone, or several."""
    if given is not None:
        image = images.get(given, given)
        is_file = image.endswith(_IMAGE_FILES) and not image.startswith("/") and Path(image).is_file()
        return str(Path(image).resolve()) if is_file else image
    if not images:
        return None
    own = {backend: [images[one.name] for one in images_of(backend) if one.name in images] for backend in work.backends}
    chosen = {names[0] for names in own.values() if names}
    lacking = [backend for backend, names in own.items() if not names]
    if not chosen:
        return None
    if lacking or len(chosen) > 1:
        has = "; ".join(f"{backend}: {names[0] if names else 'none'}" for backend, names in own.items())
        raise UsageError(f"the backends have no image in common ({has}): name one with --image, or submit them apart")
    return chosen.pop()


def find_site(given: str | None) -> Path | None:
    """The file that was named, else the user's own, if any. Raises UsageError for a named one that is not there."""
    if given == NO_FILE:
        return None
    if given is not None:
        path = Path(os.path.expanduser(given))
        if not path.exists():
            raise UsageError(f"--site: there is no file {path}; --site none goes without")
        return path
    folder = os.environ.get("XDG_CONFIG_HOME") or ""
    # the base directory specification has relative paths ignored
    root = Path(folder) if folder.startswith("/") else Path(os.path.expanduser("~/.config"))
    path = root / "suite" / "site.yaml"
    return path if path.exists() else None


def read_site(path: Path, launcher: str, left_out: Container[str] = ()) -> Site:
    """The section of a launcher, without options left out. Raises UsageError for what is wrong in any section."""
    found = Site([], {})
    for section, values in mapping(read_options(path, "a site file"), str(path)).items():
        if section not in CLUSTER_LAUNCHERS:
            known = ", ".join(CLUSTER_LAUNCHERS)
            raise UsageError(
                f"{path}: unknown section {shown(section)}{nearest(str(section), CLUSTER_LAUNCHERS)} ({known})"
            )
        where = f"{path}: {section}"
        options = dict(mapping({} if values is None else values, where))
        images = mapping(options.pop(IMAGES, {}), f"{where}: {IMAGES}")
        read = Site(
            words_of(where, options, _params(section), left_out),
            {str(name): text_of(f"{where}: {IMAGES}.{name}", image) for name, image in images.items()},
        )
        if section == launcher:
            found = read
    return found


def _params(launcher: str) -> list[Any]:
    """The options of `suite submit` that a section may hold."""
    from suite.cli.app import submit_command

    own = {*OF_NODES, *(name for name, _ in declared(find_launcher(launcher).options))}
    return [param for param in submit_command(launcher).params if param.name in own]
