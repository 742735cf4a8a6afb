"""Options that follow from the declarations of models' fields."""

from collections.abc import Sequence
from dataclasses import make_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from suite.cli.command import checked, option
from suite.spec.fields import Declared, chosen, declared, switched_on
from suite.spec.layout import Layout
from suite.spec.names import nearest
from suite.spec.terminal import UsageError
from suite.spec.workload import Workload

WORK, LAYOUT = "Work", "Layout"
Model = TypeVar("Model", bound=BaseModel)
#: the option of each field for which one was made, and those that are not called like the field that they set
_OPTIONS = {
    "precision": "--dtype",
    "rdma_count": "--rdma",
    "run_seconds": "--timeout",
    "shape_files": "--shape",
    "scalings": "--scaling",
    "silence_seconds": "--hang-timeout",
    "sizes": "--size",
}


def option_group(model: type[BaseModel], panel: str, has_defaults: bool = True) -> Any:
    """A data class with an option for each field. Nothing given is None, of a switch False, unless help shows one."""
    facts = [(name, fact) for name, fact in declared(model) if fact.option]
    _OPTIONS.update({name: fact.option for name, fact in facts if fact.option})
    options = [(name, *_option(fact, model.model_fields[name], panel, has_defaults)) for name, fact in facts]
    return make_dataclass(f"{model.__name__}Options", options, frozen=True)


def settings_of(options: Any, model: type[Model]) -> Model:
    """The model of such options. Raises UsageError where it takes one of them not."""
    return checked(lambda: model.model_validate(_given(options, model)))


def _given(options: Any, model: type[BaseModel]) -> dict[str, Any]:
    given = {name: getattr(options, name) for name, fact in declared(model) if fact.option}
    return {name: value for name, value in given.items() if value is not None}


def _option(fact: Declared, info: FieldInfo, panel: str, has_defaults: bool) -> tuple[Any, Any]:
    kind: Any
    if fact.choice in ("automatic", "switch", "flag"):
        kind, default = (bool | None, None) if fact.choice == "automatic" else (bool, info.default is True)
        no = None if fact.choice == "flag" else f"--no-{str(fact.option).removeprefix('--')}"
        return kind, option(fact.help, default, "/".join(filter(None, (fact.option, no))), panel=panel)
    plain, metavar = _typed(fact, info)
    is_list = fact.choice in ("compare", "list")
    is_shown = has_defaults and not is_list and fact.reads is None and "[default:" not in fact.help
    default = info.default if is_shown else None
    kind = list[plain] | None if is_list else plain if default is not None else plain | None  # type: ignore[valid-type]
    text = f"{fact.help}; repeat to compare" if fact.choice == "compare" else fact.help
    facts = {"metavar": fact.metavar or metavar, "min": fact.least}
    return kind, option(text, default, str(fact.option), panel=panel, **facts)


def _typed(fact: Declared, info: FieldInfo) -> tuple[Any, str | None]:
    """What a user types for a field, and its metavar where the model checks a word of a choice, or reads a text."""
    kind: Any = info.annotation
    if get_origin(kind) in (Union, UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if fact.reads is not None or fact.choice == "list":
        return str, None
    if get_origin(kind) is Literal:
        return str, "|".join(map(str, get_args(kind)))
    return (str, kind.__name__.upper()) if isinstance(kind, type) and issubclass(kind, BaseModel) else (kind, None)


#: What may be changed in a workload, and what may be asked of a layout.
WorkloadOptions: Any = option_group(Workload, WORK, has_defaults=False)
LayoutOptions: Any = option_group(Layout, LAYOUT, has_defaults=False)


def workload_changes(options: Any) -> dict[str, Any]:
    return _given(options, Workload)


def layouts_asked(options: Any, texts: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """The fields of ``LayoutChoices`` of each ``--layout`` with the single options, or of these alone. UsageError."""
    found = []
    for text in texts or ("",):
        body = {name: getattr(options, name) for name, fact in declared(Layout) if fact.option} | _in_one(options, text)
        body |= {name: tuple(body[name] or ()) for name in chosen(Layout, "compare")}
        for name in chosen(Layout, "switch"):
            info = Layout.model_fields[name]
            body[name] = switched_on(info) if body[name] else info.default
        found.append(body)
    return tuple(found)


def _in_one(options: Any, text: str) -> dict[str, Any]:
    facts = {fact.option.removeprefix("--"): (name, fact) for name, fact in declared(Layout) if fact.option}
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        word, equals, value = part.strip().partition("=")
        is_off = word.startswith("no-")
        if word.removeprefix("no-") not in facts:
            raise UsageError(f"--layout {text}: there is no {word!r}{nearest(word, facts)}; it has {', '.join(facts)}")
        name, fact = facts[word.removeprefix("no-")]
        is_switch = fact.choice in ("automatic", "switch")
        if is_switch if equals else not is_switch or (is_off and fact.choice == "switch"):
            raise UsageError(f"--layout {text}: write {word if is_switch else f'{word}=VALUE'}")
        if name in found or getattr(options, name):
            raise UsageError(f"--layout {text}: {fact.option} is given twice")
        found[name] = not is_off if is_switch else [value] if fact.choice == "compare" else value
    return found


def option_of(name: str) -> str:
    """The option that sets a field of what is asked for."""
    return _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
