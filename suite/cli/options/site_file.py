"""A site file: what its user always says of a cluster, by the names of the options; checked whole before it counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.spec import foreign
from suite.spec.base import UsageError
from suite.spec.names import nearest

#: what of the cluster's nodes belongs to the site, not to a measurement; the launcher's own options all do
OF_NODES = ("gpu", "gpus_per_node", "image", "python", "stack", "env", "mount", "require_idle")
#: images by name, which `--image NAME` means and which are taken for the backends of the catalogue's image of that name
IMAGES = "images"
NO_FILE = "none"
_MOST_BYTES = 256 * 1024
_MOST_DIGITS, _LONGEST_SHOWN, _LONGEST_NAME = 40, 80, 300


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
    body = _mapping(_parse(path), str(path))
    sections = {}
    for section, values in body.items():
        if section not in CLUSTER_LAUNCHERS:
            known = ", ".join(CLUSTER_LAUNCHERS)
            raise UsageError(
                f"{path}: unknown section {_shown(section)}{nearest(str(section), CLUSTER_LAUNCHERS)} ({known})"
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
    for key, value in ({} if values is None else _mapping(values, where)).items():
        name = str(key).replace("-", "_")
        if name == IMAGES:
            images = _mapping(value, f"{where}.{IMAGES}")
            found[IMAGES] = {str(one): _text(f"{where}.{IMAGES}.{one}", image) for one, image in images.items()}
        elif name in kinds:
            found[name] = _value(f"{where}.{key}", value, kinds[name])
        else:
            known = [one.replace("_", "-") for one in (*kinds, IMAGES)]
            raise UsageError(f"{where} has no option {_shown(key)}{nearest(str(key), known)}")
    return found


def _value(where: str, value: Any, kind: Any) -> Any:
    plain = kind if get_origin(kind) is list else next((one for one in get_args(kind) if one is not type(None)), kind)
    if get_origin(plain) is list:
        if isinstance(value, dict):
            return [f"{name}={_text(f'{where}.{name}', each)}" for name, each in value.items()]
        entries = value if isinstance(value, list) else [value]
        return [_text(where, each) for each in entries]
    if plain is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{where} is true or false, not {_shown(value)}")
        return value
    if plain is int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{where} is a number from 1 on, not {_shown(value)}")
        return value
    return _text(where, value)


def _text(where: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{where[:_LONGEST_NAME]} is a text, not {_shown(value)}; put it in quotes if it is meant so")
    return str(value)


def _mapping(value: Any, where: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} holds names with values, not {type(value).__name__}")
    return value


def _parse(path: Path) -> Any:
    from suite.spec.plain_yaml import load_plain

    try:
        found = load_plain(path, foreign.read_text(path, str(path), _MOST_BYTES, by_user=True), "a site file")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    if _is_huge(found):
        raise UsageError(f"{path} holds a number of more than {_MOST_DIGITS} digits")
    return {} if found is None else found


def _is_huge(value: Any) -> bool:
    """Whether a number in it cannot even be shown."""
    if isinstance(value, dict):
        return any(map(_is_huge, value)) or any(map(_is_huge, value.values()))
    if isinstance(value, (list, tuple, set)):
        return any(map(_is_huge, value))
    return isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS


def _shown(value: Any) -> str:
    return repr(value)[:_LONGEST_SHOWN]
