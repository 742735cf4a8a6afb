"""The runs of some folders as a list: which there are, in which state, chosen and ordered as somebody asked."""

from collections.abc import Callable, Sequence
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


#: A run of the list, as ``suite runs list --json`` has it (docs/contracts.md): null where a fact is not known.
Listed = dict[str, Any]
#: Facts that the record has of its run by the same names.
_OF_THE_RUN = ("backend", "size", "ranks", "workload", "device", "precision", "repeat", "started", "ended")
_OTHERS = ("layout", "algorithm", "device_name", "failure", "validity", "findings", "samples_per_second", "low", "high")
_UNKNOWN: Listed = dict.fromkeys((*_OF_THE_RUN, *_OTHERS, "digest", "problem", "mark"))


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
        started, device = one["started"], one["device"]
        name, algorithm = one["device_name"] or "", (one["algorithm"] or "").lower()
        named = (algorithm, algorithm.partition(":")[0])
        return (
            set(self.tags) <= set(one["tags"])
            and (not self.status or one["status"] in self.status)
            and (not self.size or one["size"] in self.size)
            and (not self.backend or one["backend"] in self.backend)
            and (not self.device or any(word.lower() == device or word.lower() in name.lower() for word in self.device))
            and (not self.algorithm or any(word.lower() in named for word in self.algorithm))
            and (self.since is None or (started is not None and started >= self.since))
            and (self.until is None or (started is not None and started < self.until))
            and (self.valid is None or one["valid"] == self.valid)
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
    path: str, facts: dict[str, Any] | StillRunning | DamagedBundle, tags: Sequence[str], places: Opened
) -> Listed:
    if isinstance(facts, StillRunning):
        facts = {"status": RUNNING, "problem": "it is being run"}
    elif isinstance(facts, DamagedBundle):
        facts = {"status": DAMAGED, "problem": places.shown(str(facts))}
    state = _state(facts)
    known = {"path": places.shown(path), "run": Path(path).name, "tags": list(tags), **facts}
    return {**_UNKNOWN, **known, "state": state, "valid": state == "ok"}


def _state(facts: dict[str, Any]) -> str:
    """Whether its figures stand, ``ok``: it ended well, was measured here, and nothing speaks against them."""
    if facts["status"] == "failed":
        return f"failed: {facts['failure'] or 'unknown'}"
    if facts["status"] != "ok":
        return str(facts["status"])
    if facts["findings"]:
        return "inconsistent"
    return "ok" if facts["validity"] in (None, "valid") else str(facts["validity"])


ORDERS = ("started", "ended", "run", "path", "state", "size", "backend", "device", "ranks", "samples_per_second")
#: Figures and times begin with the most, texts with A.
_MOST_FIRST = ("started", "ended", "ranks", "samples_per_second")


def ordered(runs: Sequence[Listed], by: str, reverse: bool = False) -> list[Listed]:
    """Runs of which it is not known come last; runs of equal value by id and path. Raises UsageError for no order."""
    order = by.replace("-", "_")
    if order not in ORDERS:
        raise UsageError(f"there is no order {by!r}{nearest(by, ORDERS)}; there are {', '.join(ORDERS)}")
    fact = "device_name" if order == "device" else order
    named = sorted(runs, key=lambda one: (one["run"], one["path"]))
    known = [one for one in named if one[fact] is not None]
    known.sort(key=itemgetter(fact), reverse=(order in _MOST_FIRST) != reverse)
    return [*known, *(one for one in named if one[fact] is None)]
