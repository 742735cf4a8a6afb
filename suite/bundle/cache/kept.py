"""What is kept of all bundles of one folder in one text: ten thousand are found again by a hundred look-ups."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from suite.bundle.cache.database import Database
from suite.bundle.cache.signature import Signature


@dataclass
class KeptRuns:
    """By the names of the bundles: the signature of each in hex, and JSON that was made of it. ``shared``: what several
    of them name, by names of its user's own."""

    runs: dict[str, tuple[str, Any]] = field(default_factory=dict)
    shared: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_changed: bool = False

    def known(self, name: str, signature: Signature | None) -> Any | None:
        """What was made of a bundle whose files are as they were; else null."""
        kept = self.runs.get(name)
        return kept[1] if kept is not None and signature is not None and kept[0] == signature.value.hex() else None

    def keep(self, name: str, signature: Signature, made: Any) -> None:
        """Of a bundle whose files nobody wrote to since ``signature`` was taken."""
        self.runs[name] = (signature.value.hex(), made)
        self.is_changed = True

    def packed(self) -> bytes:
        return json.dumps({"runs": self.runs, **self.shared}).encode()

    def forget_others(self, names: Collection[str]) -> None:
        """All but these, which are there."""
        self.runs = {name: kept for name, kept in self.runs.items() if name in names}


def kept_runs(database: Database, name: bytes) -> KeptRuns:
    """What ``KeptRuns.packed`` wrote under that name; nothing where that was never, or something else."""
    body = database.get(name) if database.is_open else None
    if body is None:
        return KeptRuns()
    try:
        parsed = from_json(body, allow_inf_nan=False)
        runs = {name: (signature, made) for name, (signature, made) in parsed.pop("runs").items()}
        return KeptRuns(runs, {kind: dict(each) for kind, each in parsed.items()})
    except (ValueError, TypeError, KeyError, AttributeError):  # its check holds, but not its content
        return KeptRuns()
