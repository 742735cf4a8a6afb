"""Reference pages, made of what the code says of itself: help of commands, descriptions of fields, docstrings."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, structs
from pydantic import BaseModel

from suite.bundle.parts import Part
from suite.cli.commands import COMMANDS, Group
from suite.cli.saved_help import saved_page
from suite.export.tables import TABLES
from suite.spec.catalogue import presets, workloads
from suite.spec.fields import Declared
from suite.spec.workload import Workload

#: Models whose fields other programs read, with what they are.
MODELS = (
    ("suite.spec.manifest:Manifest", "manifest.json", "What was resolved before the run, hashed."),
    ("suite.bundle.record:Record", "record.json", "What is derived from a run's raw events."),
    ("suite.report.comparing.model:FolderComparison", "suite compare --json", "Every row that both sides measured."),
)
#: What packages of others implement or call.
INTERFACES = (
    "suite.backends.base:BackendDriver",
    "suite.worker.engines.base:Engine",
    "suite.worker.trainers.base:Trainer",
    "suite.api:load",
    "suite.api:Runs",
    "suite.api:compare",
    "suite.api:Comparison",
)


def commands_page() -> str:
    """The help of every command, word for word."""
    parts = [
        "# Commands",
        "What `--help` prints. Exit codes: 0 done, 1 a run failed, 2 bad usage or input, 3 a gate was not met, "
        "130 interrupted.",
    ]
    for words in command_words():
        parts += [f"## suite {words}", f"```text\n{help_of(words)}\n```"]
    return "\n\n".join(parts) + "\n"


def command_words() -> Iterator[str]:
    """Every command, those of a group too."""
    for name, entry in COMMANDS.items():
        yield from (f"{name} {below}" for below in entry.commands) if isinstance(entry, Group) else (name,)


def help_of(words: str) -> str:
    """As `suite WORDS --help` prints it in a pipe, with every option."""
    asked = [[*words.split(), option] for option in ("--help-all", "--help")]
    text = next(filter(None, map(saved_page, asked)), None) or next(filter(None, map(_live, asked)))
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def _live(asked: list[str]) -> str:
    """Nothing for an option that the command does not have."""
    from suite.cli.app import UsageProblem, app

    with redirect_stdout(io.StringIO()) as shown, suppress(UsageProblem):
        app(asked, prog_name="suite", standalone_mode=False)
    return shown.getvalue()


def fields_page() -> str:
    """Every field of every model, with its type and its description."""
    parts = [
        "# Fields",
        "Of the files that runs leave and of what commands print with `--json`. A dot leads into an object, `[]` into "
        "a list.",
    ]
    for path, title, text in MODELS:
        parts += [
            f"## {title}",
            text,
            "| field | type | what it is |\n|---|---|---|\n" + "\n".join(_rows(_found(path))),
        ]
    return "\n\n".join(parts) + "\n"


def _rows(model: type, prefix: str = "", above: tuple[type, ...] = ()) -> Iterator[str]:
    for name, annotation, told in _fields(model):
        path, inner = f"{prefix}{name}", _model_in(annotation)
        text = told or (_first_line(inner) if inner else "")
        yield f"| `{path}` | {_cell(_type_name(annotation))} | {_cell(text)} |"
        if inner is not None and inner not in above:
            yield from _rows(inner, f"{path}{'[]' if _is_list(annotation) else ''}.", (*above, model))


def _fields(model: type) -> Iterator[tuple[str, Any, str]]:
    """Name, type and description of each field of a model, or of a part of a record."""
    if issubclass(model, Part):
        bare = get_type_hints(model)
        for one in structs.fields(model):
            told = [fact.description for fact in getattr(one.type, "__metadata__", ()) if isinstance(fact, Meta)]
            yield one.encode_name, bare[one.name], "".join(text for text in told if text)
        return
    for name, field in model.model_fields.items():
        declared = "".join(fact.description for fact in field.metadata if isinstance(fact, Declared))
        yield field.alias or name, field.annotation, field.description or declared


def _model_in(annotation: Any) -> type | None:
    if isinstance(annotation, type) and issubclass(annotation, (BaseModel, Part)):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one)) is not None), None)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) in (tuple, list) or any(_is_list(one) for one in get_args(annotation))


def _type_name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(_type_name(one) for one in arguments)
    if annotation is type(None):
        return "null"
    if origin is not None and hasattr(annotation, "__metadata__"):
        return _type_name(arguments[0])
    if origin in (tuple, list):
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return f"object of {_type_name(arguments[1])}"
    if origin is Literal:
        return " or ".join(json.dumps(one) for one in arguments)
    if isinstance(annotation, type) and issubclass(annotation, (BaseModel, Part)):
        return "object"
    return {str: "string", int: "whole number", float: "number", bool: "true or false"}.get(annotation, "any")


def columns_page() -> str:
    """Every column of every table that `suite export` writes."""
    parts = ["# Columns", "Of the tables that `suite export` writes ([how](../export.md))."]
    for table in TABLES.values():
        lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in table.columns:
            kind = column.kind if column.required else f"{column.kind} or null"
            values = f" (`{'`, `'.join(column.values)}`)" if 1 <= len(column.values) <= 6 else ""
            lines.append(f"| `{column.name}` | {kind} | {column.unit or '-'} | {_cell(column.meaning + values)} |")
        parts += [f"## {table.name}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def presets_page() -> str:
    """Every preset and every workload, with its source and its note."""
    parts = [
        "# Catalogue of presets and workloads",
        "What `suite run` takes by name ([how](../presets.md)).",
        "## Presets",
    ]
    for preset in presets().values():
        sizes = ", ".join(f"{point.size} on {point.ranks}" for point in preset.points)
        facts = [
            f"Track {preset.track}, workload `{preset.workload}`, backends {', '.join(preset.backends)}.",
            f"Sizes and ranks: {sizes}.",
        ]
        parts += [f"### {preset.name}", preset.summary, " ".join(facts), *_origin(preset.source, preset.note)]
    parts.append("## Workloads")
    for name, workload in workloads().items():
        parts += [f"### workload {name}", _work(workload), *_origin(workload.source, workload.note)]
    return "\n\n".join(parts) + "\n"


def _work(workload: Workload) -> str:
    lengths = [
        f"{kind} tokens {'at most ' if drawn else ''}{tokens}"
        for kind, tokens, drawn in (
            ("prompt", workload.prompt_tokens, workload.prompt_lengths),
            ("response", workload.new_tokens, workload.lengths),
        )
    ]
    algorithm = workload.algorithm.name if workload.algorithm else "ppo"
    return f"{algorithm}, {', '.join(lengths)}, {workload.rollouts} samples a device."


def _origin(source: str | None, note: str | None) -> list[str]:
    return [" ".join(filter(None, (f"Source: {source}." if source else "", note and f"Note: {note.rstrip('.')}.")))]


def interfaces_page() -> str:
    """Classes that packages of others implement, by their docstrings."""
    parts = [
        "# Interfaces",
        "What a backend of another package implements ([how](../how-to/my-backend.md)). Additions come, renames do "
        "not.",
    ]
    for path in INTERFACES:
        found = _found(path)
        parts += [f"## {path.replace(':', '.')}", _doc(found)]
        for name, member in vars(found).items():
            if name.startswith("_") or not callable(getattr(found, name)) or inspect.isclass(member):
                continue
            method = getattr(found, name)
            parts += [
                f"### {found.__name__}.{name}",
                f"```python\n{name}{inspect.signature(method)}\n```",
                _doc(method),
            ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _found(path: str) -> Any:
    module, _, name = path.partition(":")
    loaded: ModuleType = importlib.import_module(module)
    return getattr(loaded, name)


def _doc(thing: Any) -> str:
    """Words in two backticks are code, as in Markdown."""
    return re.sub(r"``([^`]+)``", r"`\1`", inspect.getdoc(thing) or "")


def _first_line(model: type[BaseModel]) -> str:
    return (inspect.getdoc(model) or "").partition("\n\n")[0]


def _cell(text: str) -> str:
    """One line of a table: no pipe ends it, and no tag is one."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/fields.md": fields_page,
    "reference/columns.md": columns_page,
    "reference/presets.md": presets_page,
    "reference/interfaces.md": interfaces_page,
}
