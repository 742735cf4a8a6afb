"""A user's own shape: a YAML file of its fields, or a Hugging Face config.json."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from suite.spec.base import UsageError
from suite.spec.foreign import read_text
from suite.spec.huggingface import shape_from_config
from suite.spec.names import repeated
from suite.spec.plain_yaml import load_plain
from suite.spec.shape import Shape
from suite.spec.typed import first_beyond

MAX_BYTES = 256 * 1024
#: No dimension of a model comes near; beyond it figures only overflow.
MAX_DIMENSION = 10**9


def load_shape(path: Path | str) -> Shape:
    """The shape in a file: YAML of ``Shape``'s fields, or a Hugging Face ``config.json``. Raises UsageError."""
    path = Path(path)
    try:
        text = read_text(path, str(path), MAX_BYTES, by_user=True)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}") from error
    data = _parse_json(path, text) if path.suffix == ".json" else load_plain(path, text, "a shape file")
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a shape file holds fields with values, which this does not")
    if "model_type" in data or "architectures" in data:
        data = shape_from_config(data, name=_model_name(path), where=str(path))
    return _validate(path, data)


def _parse_json(path: Path, text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = repeated(name for name, _ in pairs)
        if twice is not None:
            raise ValueError(f"{twice[:40]!r} is given twice")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except RecursionError as error:
        raise UsageError(f"{path}: nested too deeply for a shape") from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {' '.join(str(error).split())}") from error


def _validate(path: Path, data: dict[Any, Any]) -> Shape:
    try:
        shape = Shape.model_validate(data, strict=True)
    except ValidationError as error:
        reasons = "; ".join(_reason(item) for item in error.errors(include_url=False)[:3])
        raise UsageError(f"{path}: {reasons}") from error
    huge = first_beyond(shape.model_dump(exclude={"rope_theta"}), MAX_DIMENSION)
    if huge is not None:
        raise UsageError(f"{path}: {'.'.join(huge)} is larger than {MAX_DIMENSION:,}")
    if not shape.name.isprintable() or shape.name != shape.name.strip():
        raise UsageError(f"{path}: the name {shape.name!r} has characters that cannot be shown in a table")
    return shape


def _reason(item: Any) -> str:
    place = ".".join(str(part) for part in item["loc"])
    if item["type"] == "missing":
        return f"{place} is missing"
    if item["type"] == "extra_forbidden":
        return f"{place} is not a field of a shape ({', '.join(Shape.model_fields)})"
    message = item["msg"].removeprefix("Value error, ")
    return f"{place} is {repr(item['input'])[:40]}: {message}" if place else message


def _model_name(path: Path) -> str:
    """A config.json is named after its folder, any other file after itself."""
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return name[:64] or "model"
