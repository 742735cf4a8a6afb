"""A site file: what its user always says of a cluster, by the names of the options; checked whole before it counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from suite.cli.options.options_file import mapping, option_value, read_options, shown, text_of
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.spec.base import UsageError
from suite.spec.names import nearest

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
