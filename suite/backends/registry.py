"""The backends by name, also those that packages register by an entry point of the group ``suite.backends`` that loads
to a ``BackendDriver``, and the interpreter that holds each."""

import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from pydantic import Field

from suite.backends.base import BackendDriver
from suite.spec.base import Frozen, UsageError, worker_json
from suite.spec.manifest import ENVIRONMENT
from suite.spec.names import nearest

ENTRY_POINT_GROUP = "suite.backends"
#: Trainers whose logs are read and that are not started: their backends were never run.
_IMPORTED = ("skyrl", "areal")


@cache
def _declared() -> dict[str, str]:
    """``MODULE:CLASS`` of the suite's own by name, as ``suite/worker/backends.json`` has them for driver and worker."""
    tables = worker_json("backends.json").values()
    return {name: entry["driver"] for entries in tables for name, entry in entries.items()}


@cache
def _own(name: str) -> BackendDriver:
    return pkgutil.resolve_name(_declared()[name])()


@cache
def _registered() -> list[EntryPoint]:
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)


def own_backends() -> dict[str, BackendDriver]:
    return {name: _own(name) for name in _declared()}


@cache
def backends() -> dict[str, BackendDriver]:
    """Every backend by name, in the order they are listed. Raises UsageError when a registered one does not load."""
    found = own_backends()
    for point in _registered():
        try:
            driver = point.load()()
        except (ImportError, AttributeError, TypeError) as error:
            raise UsageError(f"backend {point.name!r} of {point.value} does not load: {error}") from error
        found[driver.name] = driver
    return found


def find_backend(name: str) -> BackendDriver:
    """The backend of this name; UsageError with the nearest names otherwise. Only its own module is imported."""
    if name in _declared() and not _registered():
        return _own(name)
    known = backends()
    if name in known:
        return known[name]
    if name in _IMPORTED:
        raise UsageError(f"{name} is not started by the suite: `suite import LOG --from {name}` takes over its own log")
    raise UsageError(f"there is no backend {name!r}{nearest(name, known)}; `suite backends` lists them")


def seat_of(name: str) -> tuple[BackendDriver, str | None]:
    """Backend and environment of ``deepspeed`` or ``deepspeed@before`` (``Backend.label``). Raises UsageError."""
    backend, _, environment = name.partition("@")
    return find_backend(backend), environment or None


#: one interpreter for all backends, where no option names one
PYTHON_VARIABLE = "SUITE_PYTHON"


class Interpreters(Frozen):
    """``usual`` holds every stack but those in ``named`` (backend or environment -> interpreter). Where nobody asked
    for one it is this interpreter, and a backend that has an environment takes the one beside this, as
    ``make <environment>`` puts it there. ``compared``: several of each other backend, by their user's names."""

    usual: str | None = None
    named: dict[str, str] = Field(default={})
    compared: dict[str, str] = Field(default={})

    def of(self, backend: str) -> str:
        """The interpreter of a backend's ranks."""
        own = find_backend(backend).environment
        asked = self.named.get(backend) or self.named.get(own or "") or self.usual
        return asked or (environment_python(own) if own else None) or sys.executable

    def seats(self, backend: str) -> dict[str, str]:
        """The interpreter of a backend, or of each of its environments that are compared (``Backend.label``)."""
        if not self.compared or {backend, find_backend(backend).environment} & self.named.keys():
            return {backend: self.of(backend)}
        return {f"{backend}@{name}": path for name, path in self.compared.items()}


def environment_python(name: str) -> str | None:
    """The interpreter of an environment beside the one that this process runs in: ``.venv-NAME`` beside ``.venv``."""
    python = Path(f"{sys.prefix}-{name}") / "bin" / "python"
    return str(python) if python.exists() else None


def read_interpreters(texts: Sequence[str], compares: bool = False) -> Interpreters:
    """``PATH`` for all, ``NAME=PATH`` for a backend or an environment; without any, what the variable says.
    ``compares``: other names, of which there are two at least, are environments of every other backend. Raises
    UsageError for a name that is nothing of this, for two of one, and where nothing behind the sign can be started."""
    named: dict[str, str] = {}
    for text in texts:
        name, sign, path = text.partition("=")
        if not sign or os.sep in name:
            name, path = "", text
        if not path or name in named:
            raise UsageError(f"--python {text!r}: one interpreter for all backends, or NAME=PATH, each once")
        if name and shutil.which(path) is None:
            raise UsageError(f"--python {name}={path}: there is no interpreter at {path}")
        named[name] = path
    usual = named.pop("", None)
    # without a name none is loaded
    known = {word for each in backends().values() for word in (each.name, each.environment) if word} if named else set()
    compared = {name: named.pop(name) for name in [*named] if name not in known}
    if len(compared) == 1 or (compared and not compares):
        name, path = next(iter(compared.items()))
        also = " (two such names are environments of a backend to compare)" if compares else ""
        what = f"there is no backend or environment {name!r}{also}{nearest(name, known)}"
        raise UsageError(f"--python {name}={path}: {what}")
    for name in compared:
        if not re.fullmatch(ENVIRONMENT, name):
            raise UsageError(f"--python {name}=PATH: environments have names of at most 31 letters, digits, . and -")
    return Interpreters(usual=usual or os.environ.get(PYTHON_VARIABLE) or None, named=named, compared=compared)
