"""What a rank wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def events_in(folder: Path, kind: str | None = None, rank: int = 0) -> list[dict[str, Any]]:
    """A rank's events in the bundle ``folder``, all or those of one kind."""
    lines = (folder / "events" / f"rank-{rank}.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if kind in (None, event["kind"])]
