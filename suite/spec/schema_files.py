"""The published JSON Schemas: a file ``suite/spec/schemas/NAME.json`` each, which belongs to the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suite.spec.base import UsageError
from suite.spec.names import nearest
from suite.spec.version import suite_version

FOLDER = Path(__file__).parent / "schemas"


def schema_names() -> list[str]:
    """Of all that are published."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def schema(name: str) -> dict[str, Any]:
    """One of them. Raises UsageError for a name that none has."""
    known = schema_names()
    if name not in known:
        raise UsageError(f"no schema {name!r}{nearest(name, known)}; there are {', '.join(known)}")
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def not_read(name: str, told: Any, known: str, maker: Any = None) -> str:
    """Why a file of another schema than ``known`` is not read, in words; ``maker``: the version of the suite that it
    says it is of, where it does."""
    by = f", written by suite {ascii(maker)[:40]}" if isinstance(maker, str) else ""
    text = f"{name} is of the schema {ascii(told)[:60]}{by}; this version, suite {suite_version()}, reads {known}"
    return f"{text}: install a newer one" if _is_newer(told, known) else text


def _is_newer(told: Any, known: str) -> bool:
    kind, _, number = known.rpartition("/")
    if not isinstance(told, str) or not told.startswith(f"{kind}/"):
        return False
    other = told.rpartition("/")[2]
    return other.isascii() and other.isdecimal() and len(other) < 10 and int(other) > int(number)
