"""Models made of the JSON that this very code dumped before: as validation would give them, in a tenth of the time.

Nothing is checked but that no required field is missing. Whoever gives the JSON answers for its being what was written.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

_Model = TypeVar("_Model", bound=BaseModel)
Make = Callable[[Any], Any]
#: What a frozen model has, set without a look at its name.
_set_fields, _set_names, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


@cache
def maker(model: type[BaseModel], given: tuple[str, ...] = ()) -> Make:
    """From a parsed object to a model of that type, with all models within.

    ``given``: fields whose values are taken as they are. What is made takes the object's place: nobody else may have
    it. Raises KeyError where a required field is missing, AttributeError and TypeError for what is no object.
    """
    every, new = _every_field(model), model.__new__
    plan = [
        (name, field.alias or name, None if name in given else _converter(field.annotation), field)
        for name, field in model.model_fields.items()
    ]
    keys = [(name, key, field.is_required(), field.default) for name, key, _, field in plan]
    plain = all(name == key for name, key, *_ in keys)
    converted = [(name, convert) for name, _, convert, _ in plan if convert is not None]

    def in_order(body: dict[str, Any]) -> dict[str, Any]:
        """With the defaults of fields that were left out, as dumps of some models do."""
        return {name: body[key] if key in body or is_required else default for name, key, is_required, default in keys}

    def make(body: dict[str, Any]) -> Any:
        fields = body if plain and body.keys() == every else in_order(body)
        for name, convert in converted:
            value = fields[name]
            if value is not None:
                fields[name] = convert(value)
        made = new(model)
        _set_fields(made, fields)
        _set_names(made, every)  # one set for all models of a type: each its own takes more than the fields
        _set_extra(made, None)
        _set_private(made, None)
        return made

    return make


def changed(model: _Model, **values: Any) -> _Model:
    """The model with other values of some fields, which are not checked."""
    made = type(model).__new__(type(model))
    _set_fields(made, {**vars(model), **values})
    _set_names(made, _every_field(type(model)))
    _set_extra(made, None)
    _set_private(made, None)
    return made


@cache
def _every_field(model: type[BaseModel]) -> set[str]:
    return set(model.model_fields)


def _converter(annotation: Any) -> Make | None:
    """Null where parsed JSON is the value already."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return maker(annotation)
    if origin is Annotated:
        return _converter(arguments[0])
    if origin in (Union, types.UnionType):
        found = [made for made in map(_converter, arguments) if made is not None]
        assert len(found) <= 1, f"{annotation} can be read in two ways"
        return found[0] if found else None
    if origin is tuple:
        assert arguments[1:] == (...,), f"{annotation} is no tuple of any length"
        part = _converter(arguments[0])
        return tuple if part is None else lambda values: tuple(map(part, values))
    if origin is dict:
        each = _converter(arguments[1])
        return None if each is None else lambda body: {name: each(value) for name, value in body.items()}
    return None
