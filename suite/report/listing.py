"""The runs of some folders as a list: which there are, in which state, chosen and ordered as somebody asked."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.survey import Surveyed, survey
from suite.bundle.cache.table import Derived, View, select
from suite.bundle.facts import inner
from suite.bundle.imported.record import MARK, ImportedRecord
from suite.bundle.imported.store import IMPORT, ImportFolder
from suite.bundle.record import Status
from suite.bundle.store import DamagedBundle, StillRunning
from suite.bundle.tags import tags_by_path
from suite.spec.base import UsageError
from suite.spec.names import nearest

#: How many bundles were read, of how many; after how long that is told, and how often then.
Progress = Callable[[int, int], None]
_FIRST_SECONDS, _NEXT_SECONDS = 5.0, 10.0
#: What a run can be in, besides how it ended.
RUNNING, DAMAGED, IMPORTED = "running", "damaged", "imported"
STATUSES = ("ok", "failed", "interrupted", RUNNING, DAMAGED, IMPORTED)


@dataclass(frozen=True, slots=True)
class RunLine:
    """Times are Unix seconds, rates samples per second with the run's own interval. ``findings``: what does not fit
    together within the bundle. ``device_name``: of rank 0's accelerator or processor."""

    run: str
    backend: str
    size: str
    ranks: int
    layout: str
    algorithm: str
    workload: str
    device: Literal["cpu", "cuda"]
    device_name: str | None
    precision: str
    repeat: int
    status: Status
    failure: str | None
    validity: str | None
    findings: tuple[str, ...]
    started: float | None
    ended: float | None
    samples_per_second: float | None
    low: float | None
    high: float | None
    digest: str | None


#: Facts that the record has of its run by the same names.
_OF_THE_RUN = ("backend", "size", "ranks", "workload", "device", "precision", "repeat", "started", "ended")


def _made(derived: Derived) -> RunLine:
    record = derived.record
    run, failure, rates = record.run, record.failure, record.throughput
    rate = rates.samples_per_second if rates else None
    name = inner(record.environment.worker, *(("cpu", "model") if run.device == "cpu" else ("device", "name")))
    return RunLine(
        run=run.id,
        layout=run.layout.label(),
        algorithm=derived.manifest.workload.algorithm.text(),
        device_name=name if isinstance(name, str) else None,
        status=record.status,
        failure=None if failure is None else failure.kind,
        validity=None if record.validity is None else record.validity.status,
        findings=tuple(sorted({finding.name for finding in derived.findings if finding.leaves_out})),
        samples_per_second=rate.value if rate else None,
        low=rate.low if rate else None,
        high=rate.high if rate else None,
        digest=derived.digest,
        **{name: getattr(run, name) for name in _OF_THE_RUN},
    )


LINES = View("line", ("report",), _made, RunLine)


@dataclass(frozen=True, slots=True)
class Listed:
    """One bundle. ``line``: null where it cannot be read yet, as ``problem`` says, and of other tools' logs."""

    path: str
    run: str
    status: str
    line: RunLine | None
    tags: tuple[str, ...] = ()
    problem: str | None = None
    imported: ImportedRecord | None = None

    def fact(self, name: str) -> Any:
        """A fact of ``RunLine`` by its name; null where it is not known."""
        if self.imported is not None:
            return _IMPORTED_FACTS.get(name, lambda _: None)(self.imported)
        return getattr(self.line, name, None)

    @property
    def state(self) -> str:
        line = self.line
        if line is None or line.status == "interrupted":
            return self.status
        if line.status == "failed":
            return f"failed: {line.failure or 'unknown'}"
        if line.findings:
            return "inconsistent"
        return line.validity if line.validity in ("suspect", "invalid") else "ok"

    @property
    def is_valid(self) -> bool:
        """Whether its figures stand: it ended well, was measured here, and nothing speaks against them."""
        return self.state == "ok"

    def as_json(self) -> dict[str, Any]:
        return {
            **{name: self.fact(name) for name in _LINE_FIELDS},
            "path": self.path,
            "run": self.run,
            "status": self.status,
            "problem": self.problem,
            "state": self.state,
            "valid": self.is_valid,
            "tags": list(self.tags),
            "mark": MARK if self.imported else None,
        }


_LINE_FIELDS = tuple(one.name for one in fields(RunLine))
#: What a list shows of another tool's log: most of it was told by the importer.
_IMPORTED_FACTS: dict[str, Callable[[ImportedRecord], Any]] = {
    "backend": lambda record: record.tool,
    "size": lambda record: record.told.model,
    "ranks": lambda record: record.told.devices,
    "algorithm": lambda record: record.told.algorithm,
    "device_name": lambda record: record.told.device,
    "samples_per_second": lambda record: record.throughput.samples_per_second,
}


@dataclass(frozen=True)
class Listing:
    """``problems``: files of tags that cannot be used, a line each."""

    runs: tuple[Listed, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """Several values of one fact: any of them fits. ``device``: ``cpu``, ``cuda``, or a part of the device's name.
    ``algorithm``: its name without options, or with them. ``since`` and ``until``: Unix seconds of the start, the
    latter not in. ``valid``: whose figures stand, or the others. ``tags``: all of them."""

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
        started, device = one.fact("started"), one.fact("device")
        name, algorithm = one.fact("device_name") or "", (one.fact("algorithm") or "").lower()
        named = (algorithm, algorithm.partition(":")[0])
        return (
            set(self.tags) <= set(one.tags)
            and (not self.status or one.status in self.status)
            and (not self.size or one.fact("size") in self.size)
            and (not self.backend or one.fact("backend") in self.backend)
            and (not self.device or any(word.lower() == device or word.lower() in name.lower() for word in self.device))
            and (not self.algorithm or any(word.lower() in named for word in self.algorithm))
            and (self.since is None or (started is not None and started >= self.since))
            and (self.until is None or (started is not None and started < self.until))
            and (self.valid is None or one.is_valid == self.valid)
        )


def read_listing(paths: Sequence[Path], progress: Progress | None = None) -> Listing:
    """Every bundle: also what is being run, and what cannot be read. ``progress`` is called now and then with how many
    are done of how many. Raises UsageError for what is no folder and no archive."""
    with opened(paths) as places:
        bundles, marked = survey(places.folders, IMPORT)
        tags, problems = tags_by_path([*(Path(each.path) for each in bundles), *marked])
        found = select(bundles, LINES, places.holds, progress and _seldom(progress))
        listed = [
            _listed(each, line, tags.get(each.path, ()), places) for each, line in zip(bundles, found, strict=True)
        ]
        listed += [_listed_import(ImportFolder(each), tags.get(each.as_posix(), ()), places) for each in marked]
    return Listing(tuple(listed), tuple(problems))


def _seldom(progress: Progress) -> Progress:
    due = time.monotonic() + _FIRST_SECONDS

    def tell(done: int, whole: int) -> None:
        nonlocal due
        if time.monotonic() > due:
            progress(done, whole)
            due = time.monotonic() + _NEXT_SECONDS

    return tell


def _listed(
    bundle: Surveyed, line: RunLine | StillRunning | DamagedBundle, tags: tuple[str, ...], places: Opened
) -> Listed:
    path, name = places.shown(bundle.path), Path(bundle.path).name
    if isinstance(line, StillRunning):
        return Listed(path, name, RUNNING, None, tags, "it is being run")
    if isinstance(line, DamagedBundle):
        return Listed(path, name, DAMAGED, None, tags, places.shown(str(line)))
    return Listed(path, line.run, line.status, line, tags)


def _listed_import(folder: ImportFolder, tags: tuple[str, ...], places: Opened) -> Listed:
    path = places.shown(folder.path.as_posix())
    try:
        record = folder.derived()
    except DamagedBundle as error:
        return Listed(path, folder.id, DAMAGED, None, tags, places.shown(str(error)))
    return Listed(path, record.id, IMPORTED, None, tags, imported=record)


ORDERS = ("started", "ended", "run", "path", "state", "size", "backend", "device", "ranks", "samples_per_second")
#: Figures and times begin with the most, texts with A.
_MOST_FIRST = ("started", "ended", "ranks", "samples_per_second")


def ordered(runs: Sequence[Listed], by: str, reverse: bool = False) -> list[Listed]:
    """Runs of which it is not known come last; runs of equal value by id and path. Raises UsageError for no order."""
    order = by.replace("-", "_")
    if order not in ORDERS:
        raise UsageError(f"there is no order {by!r}{nearest(by, ORDERS)}; there are {', '.join(ORDERS)}")
    fact = "device_name" if order == "device" else order
    named = sorted(runs, key=lambda one: (one.run, one.path))
    valued = [(getattr(one, fact) if fact in ("run", "path", "state") else one.fact(fact), one) for one in named]
    known = [both for both in valued if both[0] is not None]
    known.sort(key=itemgetter(0), reverse=(order in _MOST_FIRST) != reverse)
    return [one for _, one in (*known, *(both for both in valued if both[0] is None))]
