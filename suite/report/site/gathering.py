"""The runs of many results folders: of those that were read before and are as they were, nothing is read again."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from suite.bundle.cache.code import ROOMS, code_key
from suite.bundle.cache.cores import on_all_cores, worth_it
from suite.bundle.cache.database import Database
from suite.bundle.cache.kept import KeptRuns, kept_runs
from suite.bundle.cache.packing import Derived
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.records import DerivedRecords
from suite.bundle.cache.signature import signature_of
from suite.bundle.cache.survey import Surveyed
from suite.bundle.derive import StillRunning
from suite.bundle.evidence import read_once
from suite.bundle.folder import findings_that_leave_out
from suite.bundle.store import Bundle, DamagedBundle
from suite.bundle.verify import examined
from suite.report.site.runs import ReadRun, RunFacts, read_run
from suite.report.trust import few


@dataclass
class Gathered:
    """The runs of all folders. ``series`` and ``versions``: what runs share, by the ids that they name. ``told``: what
    a reader must know of the reading, a line each; ``read``: how many bundles were read now; ``is_kept``: all that they
    gave is found again as long as no file changes."""

    runs: list[RunFacts] = field(default_factory=list)
    series: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    read: int = 0
    is_kept: bool = False


def gather(bundles: Sequence[Surveyed]) -> Gathered:
    """Every readable run of these bundles."""
    found = Gathered()
    by_parent: dict[str, list[Surveyed]] = defaultdict(list)
    for bundle in bundles:
        by_parent[bundle.parent].append(bundle)
    database = Database(cache_folder())
    try:
        kept = {parent: kept_runs(database, _name(parent)) for parent in by_parent}
        fresh: list[Surveyed] = []
        for parent, inside in by_parent.items():
            known = kept[parent]
            if not known.shared.keys() >= {"series", "versions"}:
                known.runs.clear()
            used = [run for bundle in inside if (run := _known(known, bundle, fresh)) is not None]
            if used:
                found.runs += used
                found.series |= known.shared["series"]
                found.versions |= known.shared["versions"]
        database.flush()  # whoever keeps records now may not write while this one reads
        _read(fresh, kept, found)
        for parent, one in kept.items():
            if one.is_changed:
                one.forget_others({bundle.name for bundle in by_parent[parent]})
                one.shared = _shared(one, found)
                database.put(_name(parent), one.packed())
    finally:
        database.close()
    found.read = len(fresh)
    found.is_kept = all(kept[one.parent].known(one.name, one.signature) is not None for one in bundles)
    found.runs.sort(key=lambda run: (run.started or 0.0, run.run_id, run.path))
    _leave_out(found)
    return found


def _known(kept: KeptRuns, bundle: Surveyed, fresh: list[Surveyed]) -> RunFacts | None:
    """What is kept of a bundle; one of which nothing is, or that changed, is put to the ``fresh`` ones."""
    facts = kept.known(bundle.name, bundle.signature)
    try:
        run = None if facts is None else RunFacts.of_list(facts)
    except (ValueError, TypeError):  # its check holds, but not its content
        run = None
    if run is None:
        fresh.append(bundle)
    elif run.path != bundle.path:
        run = replace(run, path=bundle.path)
    return run


def _read(fresh: Sequence[Surveyed], kept: dict[str, KeptRuns], found: Gathered) -> None:
    """Derive what is new; what is settled is kept for the next time."""
    damaged, running = [], []
    for bundle, result in zip(fresh, _results([bundle.path for bundle in fresh]), strict=True):
        if isinstance(result, StillRunning):
            running.append(f"{bundle.path}: left out, because it is still being run")
        elif isinstance(result, DamagedBundle):
            damaged.append(f"{bundle.path}: left out, damaged: {result}")
        else:
            found.runs.append(result.facts)
            found.series[result.facts.series] = result.series
            found.versions[result.facts.versions] = result.versions
            before = bundle.signature
            if before is not None and before.is_settled and signature_of(bundle.path) == before:
                kept[bundle.parent].keep(bundle.name, before, result.facts.as_list())
    found.told += [*few(running, "running"), *few(damaged, "damaged")]


_Result = ReadRun | StillRunning | DamagedBundle


def _results(paths: Sequence[str]) -> Iterator[_Result]:
    """In the order of the bundles: many on all cores, few by way of the records that other commands keep."""
    if not worth_it(len(paths)):
        with DerivedRecords() as records:
            for path in paths:
                try:
                    yield read_run(records.of(Bundle(Path(path))), path)
                except (StillRunning, DamagedBundle) as error:
                    yield error
        return
    done = 0
    for result in on_all_cores(_read_one, paths):
        yield result
        done += 1
    yield from map(_read_one, paths[done:])  # where one of the processes was killed


def _read_one(path: str) -> _Result:
    """In a process of its own; what is wrong with a bundle is given back in words."""
    bundle = Bundle(Path(path))
    try:
        if bundle.running():
            return StillRunning(path)
        try:
            evidence, bundle = read_once(bundle)
        except DamagedBundle:
            evidence = None  # whether the bundle is damaged by it, its derivation says
        seen = examined(bundle, evidence)
    except StillRunning:
        return StillRunning(path)
    except DamagedBundle as error:
        return DamagedBundle(str(error))
    difference = seen.differences[0] if seen.differences else ""
    digest = evidence.digest if evidence else None
    return read_run(Derived(seen.manifest, seen.record, digest, seen.findings, difference), path)


def _leave_out(found: Gathered) -> None:
    """Copies and what else does not fit among the runs, told as a report tells it."""
    beside = findings_that_leave_out([run.trace() for run in found.runs])
    lines: dict[str, list[str]] = defaultdict(list)
    runs = []
    for run in found.runs:
        wrong = beside.get(Path(run.path)) if beside else None
        if wrong and run.state != "left out":
            run = replace(run, state="left out", note=wrong[0].line(), counted=())
        if run.state == "left out":
            lines[run.note.partition(":")[0]].append(f"{run.path}: left out, {run.note}")
        if run.caveat:
            line = f"{run.path}: record.json is not what its events give, which are shown: {run.caveat}"
            lines["record.json is not what its events give"].append(line)
        runs.append(run)
    found.runs = runs
    found.told += [line for name, each in sorted(lines.items()) for line in few(each, name)]


def _name(parent: str) -> bytes:
    return b"site %s %s" % (code_key((*ROOMS, "report")), os.fsencode(parent))


def _shared(kept: KeptRuns, found: Gathered) -> dict[str, dict[str, Any]]:
    """What the runs of one folder name by an id."""
    runs = [RunFacts.of_list(facts) for _, facts in kept.runs.values()]
    return {
        "series": {run.series: found.series[run.series] for run in runs},
        "versions": {run.versions: found.versions[run.versions] for run in runs},
    }
