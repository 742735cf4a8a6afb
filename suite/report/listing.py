"""The runs of some folders as a list: which there are, in which state, chosen and ordered as somebody asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from suite.bundle.cache.lines import RunLine, line_of
from suite.bundle.cache.records import DerivedRecords
from suite.bundle.derive import StillRunning
from suite.bundle.store import DamagedBundle, find_bundles
from suite.bundle.tags import tags_by_path
from suite.spec.base import UsageError
from suite.spec.names import nearest

#: What a run can be in, besides how it ended.
RUNNING, DAMAGED = "running", "damaged"
STATUSES = ("ok", "failed", "interrupted", RUNNING, DAMAGED)


@dataclass(frozen=True, slots=True)
class Listed:
    """One bundle. ``line`` is null, and ``problem`` says why, where it is being run or cannot be read."""

    path: str
    run: str
    status: str
    line: RunLine | None
    tags: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def state(self) -> str:
        """In a word or two: how it ended, and what speaks against it."""
        line = self.line
        if line is None or line.status == "interrupted":
            return self.status
        if line.status == "failed":
            return f"failed: {line.failure or 'unknown'}"
        if line.findings:
            return "inconsistent"
        return line.validity if line.validity in ("suspect", "invalid") else "ok"

    def as_json(self) -> dict[str, Any]:
        """Facts that are not known are null."""
        known = dict.fromkeys(_LINE_FIELDS) if self.line is None else _plain(self.line)
        own = {"path": self.path, "run": self.run, "status": self.status, "problem": self.problem}
        valid = self.line is not None and self.line.is_valid
        return {**known, **own, "state": self.state, "valid": valid, "tags": list(self.tags)}


_LINE_FIELDS = tuple(one.name for one in fields(RunLine))


def _plain(line: RunLine) -> dict[str, Any]:
    found = {name: getattr(line, name) for name in _LINE_FIELDS}
    return {**found, "findings": list(line.findings)}


@dataclass(frozen=True)
class Listing:
    """``problems``: files of tags that cannot be used, a line each."""

    runs: tuple[Listed, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """Which runs: those that fit everything that is given. Several values of one fact: any of them fits.

    ``device``: ``cpu``, ``cuda``, or a part of the device's name. ``algorithm``: its name without options, or with
    them. ``since`` and ``until``: Unix seconds of the start, the latter not in; a run whose start is not known fits
    neither. ``valid``: whose figures stand, or the others. ``tags``: all of them.
    """

    size: Sequence[str] = ()
    backend: Sequence[str] = ()
    device: Sequence[str] = ()
    algorithm: Sequence[str] = ()
    status: Sequence[str] = ()
    tags: Sequence[str] = ()
    since: float | None = None
    until: float | None = None
    valid: bool | None = None

    def fits(self, one: Listed) -> bool:
        if not (set(self.tags) <= set(one.tags) and (not self.status or one.status in self.status)):
            return False
        line = one.line
        if line is None:
            asked = (self.size, self.backend, self.device, self.algorithm)
            return not any(asked) and self.since is None and self.until is None and self.valid is not True
        return (
            (not self.size or line.size in self.size)
            and (not self.backend or line.backend in self.backend)
            and (not self.device or any(_is_device(word, line) for word in self.device))
            and (not self.algorithm or any(_is_algorithm(word, line.algorithm) for word in self.algorithm))
            and (self.since is None or (line.started is not None and line.started >= self.since))
            and (self.until is None or (line.started is not None and line.started < self.until))
            and (self.valid is None or line.is_valid == self.valid)
        )


def _is_device(word: str, line: RunLine) -> bool:
    return word.lower() == line.device or word.lower() in (line.device_name or "").lower()


def _is_algorithm(word: str, algorithm: str) -> bool:
    return word.lower() in (algorithm.lower(), algorithm.lower().partition(":")[0])


def read_listing(paths: Sequence[Path]) -> Listing:
    """Every bundle, by run id: also what is being run, and what cannot be read.

    A record is derived where that is not known from before (``suite.bundle.cache``). Raises UsageError for what is no
    folder.
    """
    bundles = find_bundles(paths)
    tags, problems = tags_by_path(bundle.path for bundle in bundles)
    found = []
    with DerivedRecords() as records:
        for bundle in bundles:
            path = bundle.path.as_posix()
            own = tags.get(path, ())
            try:
                line = line_of(records, bundle)
            except StillRunning:
                found.append(Listed(path, bundle.id, RUNNING, None, own, "it is being run"))
            except DamagedBundle as error:
                found.append(Listed(path, bundle.id, DAMAGED, None, own, str(error)))
            else:
                found.append(Listed(path, line.run, line.status, line, own))
    return Listing(tuple(found), tuple(problems))


@dataclass(frozen=True)
class _Order:
    """What runs are ordered by; figures and times begin with the most, texts with A."""

    read: Callable[[Listed], Any]
    most_first: bool = field(default=False)


def _of_line(name: str, most_first: bool = False) -> _Order:
    return _Order(lambda one: None if one.line is None else getattr(one.line, name), most_first)


ORDERS: dict[str, _Order] = {
    "started": _of_line("started", True),
    "ended": _of_line("ended", True),
    "run": _Order(lambda one: one.run),
    "path": _Order(lambda one: one.path),
    "state": _Order(lambda one: one.state),
    "size": _of_line("size"),
    "backend": _of_line("backend"),
    "device": _of_line("device_name"),
    "ranks": _of_line("ranks", True),
    "samples_per_second": _of_line("samples_per_second", True),
}


def ordered(runs: Sequence[Listed], by: str, reverse: bool = False) -> list[Listed]:
    """Runs of which it is not known come last; runs of equal value by id and path. Raises UsageError for no order."""
    order = ORDERS.get(by.replace("-", "_"))
    if order is None:
        raise UsageError(f"there is no order {by!r}{nearest(by, ORDERS)}; there are {', '.join(ORDERS)}")
    named = sorted(runs, key=lambda one: (one.run, one.path))
    known = [one for one in named if order.read(one) is not None]
    known.sort(key=order.read, reverse=order.most_first != reverse)
    return [*known, *(one for one in named if order.read(one) is None)]
