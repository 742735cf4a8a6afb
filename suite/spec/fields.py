"""What is declared of a field beside its type: command line, plan, messages, schemas and labels read it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from pydantic import BaseModel, model_serializer
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from suite.spec.base import Frozen


@dataclass(frozen=True)
class Declared:
    """Facts of one field.

    ``option``: how the command line calls it; none: it cannot be set there. ``help``: what it is, there and in schemas.
    ``choice``: how its values are asked for. ``compare``: several values make a cross product; ``list``: one text for
    each entry; ``automatic``: on, off, or left to the backend; ``switch``: on or off; ``flag``: off unless asked for.
    ``reads``: what the texts typed for the option mean; they are read wherever the field is given texts.
    ``metavar``: what stands for a value in help, where that does not follow from the type; ``least``: of a number.
    ``feature``: what a backend must have to honour it, as a message calls it, with ``{}`` for the value where it is
    told; a backend that does names the field in its ``extra_work``. ``None``: every backend honours it.
    ``label``: of a layout, its short name in tables with ``{}`` for the value; left out where it has its default."""

    option: str | None = None
    help: str = ""
    choice: Literal["compare", "list", "automatic", "switch", "flag"] | None = None
    label: str | None = None
    reads: Callable[[str, Any], Any] | None = None
    metavar: str | None = None
    least: int | None = None
    feature: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        schema = handler(source)
        return schema if self.reads is None else core_schema.no_info_before_validator_function(self._read, schema)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: Callable[[CoreSchema], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(schema), **({"description": self.description} if self.help else {})}

    @property
    def description(self) -> str:
        """What the field is, wherever it stands."""
        return self.help.partition(" [default:")[0]

    def _read(self, value: Any) -> Any:
        assert self.reads is not None and self.option is not None, "of an option that is read"
        return self.reads(self.option, value) if isinstance(value, (str, list, tuple)) else value


@dataclass(frozen=True)
class Later(Declared):
    """Of a field that came after manifests were hashed without it: left out, and so out of the hash, at its default."""


class Declaring(Frozen):
    """A model whose fields carry declarations; those that came ``Later`` are left out at their default."""

    @model_serializer(mode="wrap")
    def _without_unset_fields(self, plain: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        body = plain(self)
        for name in _later(type(self)):
            if is_default(self, name):
                body.pop(name, None)  # a dump may have left it out already
        return body


@cache
def declared(model: type[BaseModel]) -> tuple[tuple[str, Declared], ...]:
    """Name and declaration of each field that has one, in order."""
    return tuple(
        (name, fact)
        for name, info in model.model_fields.items()
        for fact in info.metadata
        if isinstance(fact, Declared)
    )


@cache
def _later(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, fact in declared(model) if isinstance(fact, Later))


def is_default(value: BaseModel, name: str) -> bool:
    return bool(getattr(value, name) == type(value).__pydantic_fields__[name].default)


def switched_on(info: FieldInfo) -> Any:
    """The value of a ``switch`` that is on: True, or what a choice of two words has beside its default."""
    words = [word for word in get_args(info.annotation) if word != info.default]
    return words[0] if words else True


def chosen(model: type[BaseModel], choice: str) -> tuple[str, ...]:
    """Names of the fields whose values are asked for in one way (``Declared.choice``)."""
    return tuple(name for name, fact in declared(model) if fact.choice == choice)
