"""A site file's values in the place of options that were not given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.cli.options.site_file import IMAGES, OF_NODES, find_site, read_site
from suite.spec.terminal import note

if TYPE_CHECKING:
    from suite.cli.options.cluster import Nodes
    from suite.cli.options.work import Work

#: of the options that may be repeated, those of which the command line's replace the file's
_REPLACED = frozenset(("python",))
#: options whose values may be a secret: only what stands before the sign is told
_NAMES_ONLY = frozenset(("env",))
_IMAGE_FILES = (".sqsh", ".sif")


def with_site(context: Any, launcher: str, work: Work, nodes: Nodes, options: Any) -> tuple[Nodes, Any]:
    """Both with what the site file says of this launcher, where the command line says nothing; what was taken is told
    on standard error. Entries of an option that may be repeated come before the command line's.

    Raises UsageError for a file that cannot be used.
    """
    file = find_site(nodes.site)
    found = {} if file is None else read_site(file, launcher, type(nodes))
    images = found.pop(IMAGES, {})
    taken = _taken(context, found, work, nodes, options)
    changed = {name: value for name, (value, _) in taken.items()}
    nodes = replace(nodes, **{name: value for name, value in changed.items() if name in OF_NODES})
    options = replace(options, **{name: value for name, value in changed.items() if name not in OF_NODES})
    told = [_told(name, each) for name, (_, own) in taken.items() for each in (own if isinstance(own, list) else [own])]
    image = _image(nodes.image, work, images)
    if image != nodes.image:
        if image in images.values():
            told.append(f"--image {image}")
        nodes = replace(nodes, image=image)
    if told:
        note(f"note: from {file}: {', '.join(told)}")
    return nodes, options


def _taken(context: Any, found: dict[str, Any], work: Work, nodes: Nodes, options: Any) -> dict[str, tuple[Any, Any]]:
    """Option -> its value now, and what of it is the file's."""
    taken = {}
    for name, own in found.items():
        now = getattr(nodes if name in OF_NODES else options, name)
        if name == "gpus_per_node" and work.preset is not None and nodes.nodes is None:
            continue  # a preset has nodes of its own
        if isinstance(own, list) and name not in _REPLACED:
            taken[name] = ([*own, *(now or ())], own)
        elif not _is_given(context, name):
            taken[name] = (own, own)
    return taken


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def _told(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else option.replace("--", "--no-", 1)
    return f"{option} {str(value).partition('=')[0] if name in _NAMES_ONLY else value}"


def _image(given: str | None, work: Work, images: dict[str, str]) -> str | None:
    """The image that is meant: one of the site's by its name, a file by its whole path, else that of the backends.

    Raises UsageError where the site has one for some of the backends alone, or several.
    """
    if given is not None:
        image = images.get(given, given)
        is_file = image.endswith(_IMAGE_FILES) and not image.startswith("/") and Path(image).is_file()
        return str(Path(image).resolve()) if is_file else image
    if not images:
        return None
    from suite.spec.base import UsageError
    from suite.spec.images import images_of

    own = {backend: [images[one.name] for one in images_of(backend) if one.name in images] for backend in work.backends}
    chosen = {names[0] for names in own.values() if names}
    lacking = [backend for backend, names in own.items() if not names]
    if not chosen:
        return None
    if lacking or len(chosen) > 1:
        has = "; ".join(f"{backend}: {names[0] if names else 'none'}" for backend, names in own.items())
        raise UsageError(f"the backends have no image in common ({has}): name one with --image, or submit them apart")
    return chosen.pop()
