"""What a rank wrote, and files for it to read."""

import json
from pathlib import Path
from typing import Any


def events_in(folder: Path, kind: str | None = None, rank: int = 0) -> list[dict[str, Any]]:
    """A rank's events in the bundle ``folder``, all or those of one kind."""
    lines = (folder / "events" / f"rank-{rank}.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if kind in (None, event["kind"])]


def write(root: Path, files: dict[str, str]) -> Path:
    """Texts by their paths below ``root``, which stands for what a kernel tells."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
