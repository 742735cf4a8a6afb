"""All published rows that the planner is fitted on and checked against, read once."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.planner.chat import read_chat
from tools.planner.entries import Entry
from tools.planner.published import LeftOut, csv_files, read_published, rl_files
from tools.planner.rl_rows import RLRow, read_rl

_REPEATED = re.compile(r"-(all|s2_20|blog|user|before|after)$")


@dataclass(frozen=True)
class Published:
    """Entries of training steps, memory and fits, rows of iterations and their phases, and what is left out, why."""

    entries: tuple[Entry, ...]
    rows: tuple[RLRow, ...]
    left_out: tuple[LeftOut, ...]
    digest: str

    @property
    def timed(self) -> list[Entry]:
        """Entries with a job and a step time."""
        return [entry for entry in self.entries if entry.job and entry.step_seconds]

    @property
    def sources(self) -> list[str]:
        """Every source that measured something."""
        return sorted({entry.source for entry in self.timed} | {row.source for row in self.rows})

    def without(self, *sources: str) -> "Published":
        """The rest."""
        entries = tuple(entry for entry in self.entries if entry.source not in sources)
        return Published(entries, tuple(row for row in self.rows if row.source not in sources), (), "")


def read(paths: Sequence[Path]) -> Published:
    """Every usable row of the files and folders. Raises UsageError for what cannot be read."""
    files = csv_files(paths)
    collection = read_published(files)
    rows, without_rl = read_rl(rl_files(paths))
    chat, without_chat = read_chat(files)
    every = (*rows, *chat)
    content = hashlib.sha256(collection.digest.encode())
    for row in every:
        content.update(repr((row.source, row.config, sorted(row.values.items()))).encode())
    named = {(row.source, row.config) for row in chat}
    left_out = [one for one in collection.left_out if (one.source, one.config) not in named]
    return Published(tuple(collection.entries), every, (*left_out, *without_rl, *without_chat), content.hexdigest())


def configuration(row: RLRow) -> str:
    """A configuration's name without what sets its reruns apart."""
    return _REPEATED.sub("", row.config)
