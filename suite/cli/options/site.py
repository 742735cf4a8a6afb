"""A site file: what its user always says of a cluster, by the names of the options, in the place of those not given.

It is checked whole before it counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from suite.cli.options.options_file import mapping, option_value, read_options, shown, text_of
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.spec.base import UsageError
from suite.spec.names import nearest
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


#: what of the cluster's nodes belongs to the site, not to a measurement; the launcher's own options all do
OF_NODES = ("gpu", "gpus_per_node", "image", "python", "stack", "env", "mount", "require_idle")
#: images by name, which `--image NAME` means and which are taken for the backends of the catalogue's image of that name
IMAGES = "images"
NO_FILE = "none"


def find_site(given: str | None) -> Path | None:
    """The file that was named, else the user's own where there is one; ``None``: no site file.

    Raises UsageError for a named file that is not there.
    """
    if given == NO_FILE:
        return None
    if given is not None:
        path = Path(given).expanduser()
        if not path.exists():
            raise UsageError(f"--site: there is no file {path}; --site none goes without")
        return path
    folder = os.environ.get("XDG_CONFIG_HOME") or ""
    # the base directory specification has relative paths ignored
    root = Path(folder) if folder.startswith("/") else Path("~/.config").expanduser()
    path = root / "suite" / "site.yaml"
    return path if path.exists() else None


def read_site(path: Path, name: str, nodes: type) -> dict[str, Any]:
    """The section of a launcher, each value as its option would have it. ``nodes``: the class of the nodes' options.

    Raises UsageError, one line, for whatever is wrong in any section of the file.
    """
    body = mapping(read_options(path, "a site file"), str(path))
    sections = {}
    for section, values in body.items():
        if section not in CLUSTER_LAUNCHERS:
            known = ", ".join(CLUSTER_LAUNCHERS)
            raise UsageError(
                f"{path}: unknown section {shown(section)}{nearest(str(section), CLUSTER_LAUNCHERS)} ({known})"
            )
        sections[section] = _section(f"{path}: {section}", values, _kinds(find_launcher(section).options, nodes))
    return sections.get(name, {})


def _kinds(options: type, nodes: type) -> dict[str, Any]:
    """Option -> type of its value, of all that a section may hold."""
    of_nodes, of_launcher = get_type_hints(nodes), get_type_hints(options)
    return {
        **{name: of_nodes[name] for name in OF_NODES},
        **{field.name: of_launcher[field.name] for field in fields(options)},
    }


def _section(where: str, values: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in ({} if values is None else mapping(values, where)).items():
        name = str(key).replace("-", "_")
        if name == IMAGES:
            images = mapping(value, f"{where}.{IMAGES}")
            found[IMAGES] = {str(one): text_of(f"{where}.{IMAGES}.{one}", image) for one, image in images.items()}
        elif name in kinds:
            found[name] = option_value(f"{where}.{key}", value, kinds[name])
        else:
            known = [one.replace("_", "-") for one in (*kinds, IMAGES)]
            raise UsageError(f"{where} has no option {shown(key)}{nearest(str(key), known)}")
    return found
