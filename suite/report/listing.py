"""The runs of some folders as a list: which there are, in which state, chosen and ordered as somebody asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from suite.bundle.archive.opening import Opened, opened
from suite.bundle.cache.survey import survey
from suite.bundle.cache.table import Derived, View, select
from suite.bundle.facts import inner
from suite.bundle.imported.record import MARK
from suite.bundle.imported.store import IMPORT, ImportFolder
from suite.bundle.store import DamagedBundle, StillRunning
from suite.bundle.tags import tags_by_path
from suite.spec.base import UsageError
from suite.spec.names import nearest

#: How many bundles were read, of how many; and after so many that is told again.
Progress = Callable[[int, int], None]
_TOLD_EVERY = 500
#: What a run can be in, besides how it ended.
RUNNING, DAMAGED, IMPORTED = "running", "damaged", "imported"
STATUSES = ("ok", "failed", "interrupted", RUNNING, DAMAGED, IMPORTED)


#: Facts that the record has of its run by the same names.
_OF_THE_RUN = ("backend", "size", "ranks", "workload", "device", "precision", "repeat", "started", "ended")


def _made(derived: Derived) -> dict[str, Any]:
    """Facts of a run. Times are Unix seconds, rates samples per second with the run's own interval. ``findings``: what
    does not fit together within the bundle. ``device_name``: of rank 0's accelerator or processor."""
    record = derived.record
    run, failure, rates = record.run, record.failure, record.throughput
    rate = rates.samples_per_second if rates else None
    name = inner(record.environment.worker, *(("cpu", "model") if run.device == "cpu" else ("device", "name")))
    return {
        "run": run.id,
        **{name: getattr(run, name) for name in _OF_THE_RUN},
        "layout": run.layout.label(),
        "algorithm": derived.manifest.workload.algorithm.text(),
        "device_name": name if isinstance(name, str) else None,
        "status": record.status,
        "failure": None if failure is None else failure.kind,
        "validity": None if record.validity is None else record.validity.status,
        "findings": sorted({finding.name for finding in derived.findings if finding.leaves_out}),
        "samples_per_second": rate.value if rate else None,
        "low": rate.low if rate else None,
        "high": rate.high if rate else None,
        "digest": derived.digest,
    }


LINES: View[dict[str, Any]] = View("line", ("report",), _made, dict)


def _imported(folder: Path) -> dict[str, Any] | DamagedBundle:
    """Facts of another tool's log, of which most were told by the importer."""
    try:
        record = ImportFolder(folder).derived()
    except DamagedBundle as error:
        return error
    return {
        "run": record.id,
        "status": IMPORTED,
        "backend": record.tool,
        "size": record.told.model,
        "ranks": record.told.devices,
        "algorithm": record.told.algorithm,
        "device_name": record.told.device,
        "samples_per_second": record.throughput.samples_per_second,
        "mark": MARK,
    }


#: What is told of every run, where it is known.
_FACTS = (
    *("layout", "algorithm", "device_name", "failure", "validity", "findings", *_OF_THE_RUN),
    *("samples_per_second", "low", "high", "digest", "mark"),
)


@dataclass(frozen=True, slots=True)
class Listed:
    """One bundle. ``facts``: as they are known, none where it cannot be read yet, as ``problem`` says."""

    path: str
    run: str
    status: str
    facts: Mapping[str, Any]
    tags: tuple[str, ...] = ()
    problem: str | None = None

    def fact(self, name: str) -> Any:
        """Null where it is not known."""
        return self.facts.get(name)

    @property
    def state(self) -> str:
        if self.status == "failed":
            return f"failed: {self.fact('failure') or 'unknown'}"
        if self.status != "ok":
            return self.status
        if self.fact("findings"):
            return "inconsistent"
        return self.fact("validity") if self.fact("validity") in ("suspect", "invalid") else "ok"

    @property
    def is_valid(self) -> bool:
        """Whether its figures stand: it ended well, was measured here, and nothing speaks against them."""
        return self.state == "ok"

    def as_json(self) -> dict[str, Any]:
        return {
            **{name: self.fact(name) for name in _FACTS},
            "path": self.path,
            "run": self.run,
            "status": self.status,
            "problem": self.problem,
            "state": self.state,
            "valid": self.is_valid,
            "tags": list(self.tags),
        }


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


def read_listing(paths: Sequence[Path], progress: Progress | None = None) -> tuple[list[Listed], list[str]]:
    """Every bundle: also what is being run, and what cannot be read; and a line for each file of tags that cannot be
    used. ``progress`` is called now and then with how many are done of how many. Raises UsageError for what is no
    folder and no archive."""

    def tell(done: int, whole: int) -> None:
        if progress is not None and done % _TOLD_EVERY == 0:
            progress(done, whole)

    with opened(paths) as places:
        bundles, marked = survey(places.folders, IMPORT)
        tags, problems = tags_by_path([*(Path(each.path) for each in bundles), *marked])
        found = select(bundles, LINES, places.holds, tell)
        listed = [
            _listed(each.path, facts, tags.get(each.path, ()), places)
            for each, facts in zip(bundles, found, strict=True)
        ]
        for path in map(Path.as_posix, marked):
            listed.append(_listed(path, _imported(Path(path)), tags.get(path, ()), places))
    return listed, problems


def _listed(
    path: str, facts: dict[str, Any] | StillRunning | DamagedBundle, tags: tuple[str, ...], places: Opened
) -> Listed:
    shown, name = places.shown(path), Path(path).name
    if isinstance(facts, StillRunning):
        return Listed(shown, name, RUNNING, {}, tags, "it is being run")
    if isinstance(facts, DamagedBundle):
        return Listed(shown, name, DAMAGED, {}, tags, places.shown(str(facts)))
    return Listed(shown, facts["run"], facts["status"], facts, tags)


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
