"""Ground of every data model: frozen, closed, and hashed from a canonical JSON text."""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from suite.spec.terminal import UsageError as UsageError
from suite.spec.terminal import printable as printable

_LONGEST_MESSAGE = 300
#: What kind of fairness a row claims (docs/measuring.md).
Track = Literal["equal-config", "vendor-default", "tuned"]


class Frozen(BaseModel):
    """An immutable record whose unknown fields are errors, so that a typing slip never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def canonical_json(value: Any) -> str:
    """The one JSON text of ``value``: sorted keys, no spaces, no NaN. Equal data gives equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def worker_json(file: str) -> Any:
    """What a JSON file of ``suite/worker`` declares for driver and worker alike."""
    return json.loads((Path(__file__).parents[1] / "worker" / file).read_text(encoding="utf-8"))


def digest(value: Any) -> str:
    """SHA-256 in hex of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def first_line(error: ValidationError) -> str:
    """What pydantic found first, in one line with the field's path."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    text = " ".join(first["msg"].split())[:_LONGEST_MESSAGE]
    return f"{field}: {text}" if field else text
