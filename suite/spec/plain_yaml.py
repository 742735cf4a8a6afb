"""YAML that others may have written: names, texts, numbers, lists; nothing that stands for more than is there."""

from pathlib import Path
from typing import Any

import yaml

from suite.spec.base import UsageError
from suite.spec.foreign import read_text
from suite.spec.names import repeated

MAX_BYTES, MAX_DEPTH, MAX_DIGITS = 256 * 1024, 32, 40


def load_plain(path: Path, what: str) -> Any:
    """The data of a file; ``what``: what it is, such as ``a shape file``. Raises UsageError for no YAML, an alias (few
    lines could stand for gigabytes), a tag (it reads a value as what it is not), depth, or a key that comes twice."""
    text = read_text(path, str(path), MAX_BYTES, by_user=True)
    try:
        _refuse_tricks(path, text, what)
        return yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {_line(error)}") from error
    except UsageError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: a value cannot be read: {_line(error)}") from error


def _refuse_tricks(path: Path, text: str, what: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise UsageError(f"{path}: aliases (*{str(event.anchor)[:40]}) are not allowed in {what}")
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":  # which is how YAML marks a quoted text
            raise UsageError(f"{path}: tags ({tag[:40]}) are not allowed in {what}")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise UsageError(f"{path}: nested too deeply for {what}")


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader, which also refuses a key that is written twice, and a number that could not even be shown."""

    def construct_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MAX_DIGITS:
            raise ValueError(f"a number of more than {MAX_DIGITS} digits")
        return super().construct_yaml_int(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        twice = repeated(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[:40]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


_UniqueKeys.add_constructor("tag:yaml.org,2002:int", _UniqueKeys.construct_int)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
