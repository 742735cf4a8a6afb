"""Which algorithm an iteration is of, and its options, as its file in ``suite/worker/algorithms`` declares them: each
opens with a ``DECLARATION``, a literal that is read without importing the file, which needs torch."""

import ast
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from suite.spec.base import Frozen, UsageError
from suite.spec.names import finder

_FOLDER = Path(__file__).parents[1] / "worker" / "algorithms"
PPO_NAME = "ppo"
Option = bool | int | float | str


class Declaration(Frozen):
    """``values``: it learns values, by a value head or a critic. ``reference``: the option whose value above 0 asks for
    log-probs of the reference policy; null: always. ``group``: samples of each prompt unless others are asked for;
    1: it needs no groups. ``options``: names with their defaults; ``choices``: the words that a text may be; ``most``:
    the largest value of a number, where there is one."""

    name: str
    summary: str
    source: str
    values: bool = False
    reference: str | None = None
    group: int = Field(1, gt=0)
    least_group: int = Field(1, gt=0)
    options: Mapping[str, Option] = {}
    choices: Mapping[str, tuple[str, ...]] = {}
    most: Mapping[str, float] = {}


@lru_cache(maxsize=1)
def declarations() -> Mapping[str, Declaration]:
    """Every algorithm by name, PPO first."""
    found = [_declaration(path) for path in sorted(_FOLDER.glob("*.py")) if path.name not in ("__init__.py", "base.py")]
    found.sort(key=lambda each: (each.name != PPO_NAME, each.name))
    return {each.name: each for each in found}


find_algorithm = finder("algorithm", declarations)


def _declaration(path: Path) -> Declaration:
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", None) == "DECLARATION":
            return Declaration.model_validate(ast.literal_eval(statement.value))
    raise ValueError(f"{path} declares no algorithm")


class Algorithm(Frozen):
    """An algorithm with all its options, those left out at their defaults; read from a text too: ``grpo``, or
    ``grpo:kl_coefficient=0.001,clip_high=0.28``."""

    name: str
    options: Mapping[str, Option] = {}

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        body = _parse(value) if isinstance(value, str) else value
        if not isinstance(body, Mapping) or not isinstance(body.get("name"), str):
            return body
        declared = find_algorithm(body["name"])
        given = body.get("options") or {}
        if not isinstance(given, Mapping):
            return body
        options = {**declared.options, **{name: _checked(declared, name, each) for name, each in given.items()}}
        return {**body, "name": declared.name, "options": options}

    @property
    def declaration(self) -> Declaration:
        return find_algorithm(self.name)

    @property
    def uses_reference(self) -> bool:
        """Whether an iteration asks the reference policy for log-probs."""
        option = self.declaration.reference
        return option is None or float(self.options[option]) > 0

    def __hash__(self) -> int:
        return hash((self.name, *sorted(self.options)))

    def __str__(self) -> str:
        return self.name

    def text(self) -> str:
        """As the command line has it, with the options that differ from their defaults."""
        changed = [f"{name}={value}" for name, value in self.options.items() if value != self.declaration.options[name]]
        return ":".join(filter(None, (self.name, ",".join(changed))))


def _parse(text: str) -> dict[str, Any]:
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.strip().partition("=")
        if not equals or option.replace("-", "_") in options:
            raise UsageError(f"{part[:40]!r} in --algorithm {text[:60]!r} is not one option=value, each once")
        options[option.replace("-", "_")] = value
    return {"name": name.strip().lower(), "options": options}


def _checked(declared: Declaration, name: str, value: Any) -> Option:
    """An option's value in the type of its default. Raises UsageError for an unknown option or another type."""
    if name not in declared.options:
        known = ", ".join(declared.options) or "none"
        raise UsageError(f"{declared.name} has no option {str(name)[:40]!r}; its options are {known}")
    default = declared.options[name]
    wanted = f"{declared.name}'s {name}"
    if isinstance(default, bool):
        word = str(value).lower()
        if word not in ("true", "false", "yes", "no", "on", "off"):
            raise UsageError(f"{wanted} is yes or no, not {str(value)[:40]!r}")
        return word in ("true", "yes", "on")
    if isinstance(default, str):
        if value not in declared.choices.get(name, ()):
            raise UsageError(f"{wanted} is one of {', '.join(declared.choices[name])}, not {str(value)[:40]!r}")
        return str(value)
    try:
        number = int(str(value)) if isinstance(default, int) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    most = declared.most.get(name, 1e9)
    if not 0 <= number <= most:  # no coefficient of these algorithms is negative; not a number is neither
        raise UsageError(f"{wanted} is a number from 0 to {most:g}, not {str(value)[:40]!r}")
    return number
