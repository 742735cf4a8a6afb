"""Options in files, as words of a command line: a plan of `suite run`, a folder's defaults, and a cluster's site, which
says what its user always says of it. A site file is checked whole before it counts."""

import os
from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.spec import foreign
from suite.spec.fields import declared
from suite.spec.images import images_of
from suite.spec.names import nearest
from suite.spec.plain_yaml import MAX_BYTES, load_plain
from suite.spec.terminal import UsageError, note, say

if TYPE_CHECKING:
    from suite.cli.options.cluster import Nodes
    from suite.cli.options.work import Work

_LONGEST_SHOWN, _LONGEST_NAME = 80, 300
_IMAGE_FILES = (".sqsh", ".sif")
#: what of the cluster's nodes belongs to the site, not to a measurement; the launcher's own options all do
_OF_NODES = ("gpu", "gpus_per_node", "image", "python", "stack", "env", "mount", "require_idle")
#: images by name, which `--image NAME` means and which are taken for the backends of the catalogue's image of that name
_IMAGES = "images"
#: under which a command keeps what its site file says
_KEPT = "suite.site"


#: what a file says of a launcher: options as words of the command line, and images by their names
Site = tuple[list[str], dict[str, str]]


def words_of_files(command: Any, context: Any) -> list[str]:
    """The options of the folder's defaults, of the cluster's site and of a plan, in this order; of each those that
    neither a later one nor the command line has. Raises UsageError."""
    from suite.cli.app import DEFAULTS, OPTIONS_FILE

    given = {name for name in context.params if context.get_parameter_source(name).name == "COMMANDLINE"}
    path = context.params.get(OPTIONS_FILE)
    plan = _words(str(path), load_plain(path, "a file of options"), command.params, given) if path else []
    site = _site_words(context, command.name, given) if "site" in context.params else []
    if not os.path.isfile(DEFAULTS):
        return [*site, *plan]
    named = {word.partition("=")[0] for word in (*plan, *site)}
    given |= {param.name for param in command.params if named.intersection((*param.opts, *param.secondary_opts))}
    allowed = [param for param in command.params if param.name != "yes"]  # consent is typed
    usual = _default_words(DEFAULTS, context.command_path.split()[1:], allowed, given)
    if context.params.get("verbose"):
        options = ", ".join(word.partition("=")[0] for word in usual)
        say(f"from {DEFAULTS}: {options or 'nothing'}", err=True)
    return [*usual, *site, *plan]


def _words(where: str, values: Any, params: Iterable[Any], left_out: Container[str]) -> list[str]:
    """Options of a command by name as a command line has them, without those ``left_out``. Raises UsageError."""
    options = {param.opts[0].removeprefix("--"): param for param in params if param.param_type_name == "option"}
    words: list[str] = []
    for key, value in _mapping(values, where).items():
        name = str(key).replace("_", "-")
        if name not in options:
            raise UsageError(f"{where} has no option {_shown(key)}{nearest(name, options)}")
        option = options[name]
        if option.name in left_out:
            continue
        if getattr(option, "is_flag", False):
            if not isinstance(value, bool):
                raise UsageError(f"{where}: {key} is true or false, not {_shown(value)}")
            words += option.opts[:1] if value else option.secondary_opts[:1]
        else:
            words += [f"--{name}={text}" for text in _texts(f"{where}: {key}", value, option)]
    return words


def _texts(where: str, value: Any, option: Any) -> list[str]:
    """What is typed for an option; of one that may be repeated each entry."""
    if option.multiple and isinstance(value, dict):
        return [f"{name}={_text(f'{where}.{name}', each)}" for name, each in value.items()]
    if option.type_descriptor.annotation is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"{where} is a whole number, not {_shown(value)}")
    return [_text(where, each) for each in (value if option.multiple and isinstance(value, list) else [value])]


def _text(where: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{where[:_LONGEST_NAME]} is a text, not {_shown(value)}; put it in quotes if it is meant so")
    text = str(value)
    if "\0" in text or text != text.encode(errors="replace").decode():
        raise UsageError(f"{where[:_LONGEST_NAME]} holds a character that no command line can carry: {_shown(value)}")
    return text


def _mapping(value: Any, where: str) -> dict[Any, Any]:
    """What a file, or a part of it, holds; nothing where that is empty. Raises UsageError."""
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{where} holds names with values, not {type(value).__name__}")
    return value or {}


def _shown(value: Any) -> str:
    return repr(value)[:_LONGEST_SHOWN]


def _default_words(path: Path, command: list[str], params: Iterable[Any], given: Container[str]) -> list[str]:
    """Of the table of a command in a file of defaults."""
    import tomllib

    from suite.cli.commands import COMMANDS

    text = foreign.read_text(path, str(path), MAX_BYTES, by_user=True).removeprefix("\ufeff")
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    known: Any = COMMANDS
    for word in command:
        for name in tables:
            if name not in known:
                raise UsageError(f"{path} is of no command {_shown(name)}{nearest(name, known)}")
        tables = _mapping(tables.get(word, {}), f"{path}: {word}")
        known = getattr(known[word], "commands", ())
    return _words(f"{path}: {'.'.join(command)}", tables, params, given)


def _site_words(context: Any, launcher: str, given: Container[str]) -> list[str]:
    """What the site file says of this launcher, where the command line says nothing; entries of an option that may be
    repeated come before its own. ``given``: options of the command line."""
    file = _find_site(context.params["site"])
    if file is None:
        return []
    replaced = [param for param in _params(launcher) if param.name == "python" or not param.multiple]
    left_out = {param.name for param in replaced if param.name in given}
    if context.params["preset"] is not None and not context.params["nodes"]:
        left_out.add("gpus_per_node")  # a preset has nodes of its own
    words, images = read_site(file, launcher, left_out)
    context.meta[_KEPT] = file, words, images
    return words


def with_site(context: Any, work: "Work", nodes: "Nodes") -> "Nodes":
    """The nodes with the image that is meant; what the site file gave goes to standard error. Raises UsageError."""
    file, words, images = context.meta.get(_KEPT, (None, [], {}))
    told = []
    for option, _, value in (word.partition("=") for word in words):
        # of a variable the name alone: its value may be a secret
        told.append(f"{option} {value.partition('=')[0] if option == '--env' else value}".rstrip())
    image = _image(nodes.image, work, images)
    if image != nodes.image and image in images.values():
        told.append(f"--image {image}")
    if told:
        note(f"note: from {file}: {', '.join(told)}")
    return replace(nodes, image=image)


def _image(given: str | None, work: "Work", images: dict[str, str]) -> str | None:
    """One of the site's by its name, a file by its whole path, else the one that the site has for all of the backends.
    Raises UsageError where it has one for some of them alone, or several."""
    if given is not None:
        image = images.get(given, given)
        is_file = image.endswith(_IMAGE_FILES) and not image.startswith("/") and Path(image).is_file()
        return str(Path(image).resolve()) if is_file else image
    own = {backend: [images[one.name] for one in images_of(backend) if one.name in images] for backend in work.backends}
    chosen = {names[0] if names else None for names in own.values()}
    if len(chosen) > 1:
        has = "; ".join(f"{backend}: {names[0] if names else 'none'}" for backend, names in own.items())
        raise UsageError(f"the backends have no image in common ({has}): name one with --image, or submit them apart")
    return chosen.pop()


def _find_site(given: str | None) -> Path | None:
    """The file that was named, else the user's own, if any. Raises UsageError for a named one that is not there."""
    # the base directory specification has relative paths ignored
    folder = os.environ.get("XDG_CONFIG_HOME") or ""
    root = folder if folder.startswith("/") else os.path.expanduser("~/.config")
    path = Path(root, "suite", "site.yaml") if given is None else Path(os.path.expanduser(given))
    if given not in (None, "none") and not path.exists():
        raise UsageError(f"--site: there is no file {path}; --site none goes without")
    return path if given != "none" and path.exists() else None


def read_site(path: Path, launcher: str, left_out: Container[str] = ()) -> Site:
    """The section of a launcher, without options left out. Raises UsageError for what is wrong in any section."""
    found: Site = ([], {})
    for section, values in _mapping(load_plain(path, "a site file"), str(path)).items():
        if section not in CLUSTER_LAUNCHERS:
            close, known = nearest(str(section), CLUSTER_LAUNCHERS), ", ".join(CLUSTER_LAUNCHERS)
            raise UsageError(f"{path}: unknown section {_shown(section)}{close} ({known})")
        where = f"{path}: {section}"
        options = dict(_mapping(values, where))
        images = _mapping(options.pop(_IMAGES, {}), f"{where}: {_IMAGES}")
        words = _words(where, options, _params(section), left_out)
        named = {str(name): _text(f"{where}: {_IMAGES}.{name}", image) for name, image in images.items()}
        if section == launcher:
            found = words, named
    return found


def _params(launcher: str) -> list[Any]:
    """The options of `suite submit` that a section may hold."""
    from suite.cli.app import submit_command

    own = {*_OF_NODES, *(name for name, _ in declared(find_launcher(launcher).options))}
    return [param for param in submit_command(launcher).params if param.name in own]
