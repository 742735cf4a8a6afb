"""Changes to a bundle as somebody would make them who wants a better figure: consistent where that is easy."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from tests.synthetic import Event, as_lines

RUNS = Path(__file__).resolve().parents[2] / "docs/results/cpu/runs"


def shipped(row: str, repeat: int = 1) -> str:
    """The run of a row that the repository ships, by backend, size and ranks: ``megatron-1M-n2``."""
    (path,) = RUNS.glob(f"{row}-????????-r{repeat}")
    return path.name


def copied(name: str, root: Path) -> Path:
    """A real bundle, under ``root``."""
    return Path(shutil.copytree(RUNS / name, root / name))


def events_of(path: Path, writer: int | str) -> list[Event]:
    """Of a rank, or of ``driver``."""
    return [json.loads(line) for line in _file(path, writer).read_text().splitlines()]


def write_events(path: Path, writer: int | str, events: list[Event]) -> None:
    _file(path, writer).write_text(as_lines(events))


def change(path: Path, edit: Callable[[Event], object], *writers: int | str) -> None:
    """``edit`` every event of these ranks, or of ``driver``, of all ranks without any; and derive the record again."""
    for writer in writers or [file.stem for file in (path / "events").glob("rank-*.jsonl")]:
        events = events_of(path, writer)
        for event in events:
            edit(event)
        write_events(path, writer, events)
    derive_again(path)


def derive_again(path: Path) -> None:
    Bundle(path).write_record(derive(Bundle(path)))


def renamed(path: Path, run_id: str, **run: Any) -> Path:
    """Another run by its manifest, folder, record, and its driver's word for who takes turns."""
    target = path.with_name(run_id)
    path.rename(target)
    body = json.loads((target / "manifest.json").read_text())
    driver = _file(target, "driver")
    driver.write_text(driver.read_text().replace(body["run"]["id"], run_id))
    body["run"].update(id=run_id, **run)
    (target / "manifest.json").write_text(json.dumps(body, indent=2))
    derive_again(target)
    return target


def _file(path: Path, writer: int | str) -> Path:
    return path / "events" / (f"rank-{writer}.jsonl" if isinstance(writer, int) else f"{writer}.jsonl")
