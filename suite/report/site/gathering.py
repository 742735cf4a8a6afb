"""The runs of many results folders: of those that were read before and are as they were, nothing is read again."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from suite.bundle.cache.code import ROOMS, code_key
from suite.bundle.cache.cores import on_all_cores, worth_it
from suite.bundle.cache.database import Database
from suite.bundle.cache.packing import Derived
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.records import DerivedRecords
from suite.bundle.cache.signature import Signature, signature_of
from suite.bundle.derive import StillRunning
from suite.bundle.evidence import evidence_of
from suite.bundle.folder import folder_findings
from suite.bundle.store import Bundle, DamagedBundle, find_bundles
from suite.bundle.verify import examined
from suite.report.site.runs import ReadRun, RunFacts, read_run
from suite.report.trust import few


@dataclass
class Gathered:
    """The runs of all folders. ``series`` and ``versions``: what runs share, by the ids that they name. ``told``: what
    a reader must know of the reading, a line each; ``read``: how many bundles were read now."""

    runs: list[RunFacts] = field(default_factory=list)
    series: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    read: int = 0


@dataclass
class _Kept:
    """What is known of the bundles in one folder, by their names: signature and facts."""

    runs: dict[str, tuple[str, RunFacts]] = field(default_factory=dict)
    is_changed: bool = False


def gather(folders: Sequence[Path]) -> Gathered:
    """Every readable run below ``folders``, once. Raises UsageError for what is no folder."""
    bundles = find_bundles(folders)
    found = Gathered()
    by_parent: dict[str, list[Bundle]] = defaultdict(list)
    for bundle in bundles:
        by_parent[_place(bundle)[0]].append(bundle)
    database = Database(cache_folder())
    try:
        kept = {parent: _kept(database, parent, found) for parent in by_parent}
        fresh: list[tuple[Bundle, Signature | None]] = []
        for parent, inside in by_parent.items():
            for bundle in inside:
                name, path = _place(bundle)[1], bundle.path.as_posix()
                before = signature_of(os.path.join(parent, name))
                known = kept[parent].runs.get(name)
                if known is None or before is None or known[0] != before.value.hex():
                    fresh.append((bundle, before))
                else:
                    found.runs.append(known[1] if known[1].path == path else replace(known[1], path=path))
        database.flush()  # whoever keeps records now may not write while this one reads
        _read(fresh, kept, found)
        for parent, one in kept.items():
            if one.is_changed:
                database.put(_name(parent), _packed(one, found))
    finally:
        database.close()
    found.read = len(fresh)
    found.runs.sort(key=lambda run: (run.started or 0.0, run.run_id, run.path))
    _leave_out(found, bundles, folders)
    return found


def _read(fresh: Sequence[tuple[Bundle, Signature | None]], kept: dict[str, _Kept], found: Gathered) -> None:
    """Derive what is new; what is settled is kept for the next time."""
    damaged, running = [], []
    for (bundle, before), result in zip(fresh, _results([bundle for bundle, _ in fresh]), strict=True):
        if isinstance(result, StillRunning):
            running.append(f"{bundle.path}: left out, because it is still being run")
        elif isinstance(result, DamagedBundle):
            damaged.append(f"{bundle.path}: left out, damaged: {result}")
        else:
            found.runs.append(result.facts)
            found.series[result.facts.series] = result.series
            found.versions[result.facts.versions] = result.versions
            place, name = _place(bundle)
            if before is not None and before.is_settled and signature_of(os.path.join(place, name)) == before:
                parent = kept[place]
                parent.runs[name] = (before.value.hex(), result.facts)
                parent.is_changed = True
    found.told += [*few(running, "running"), *few(damaged, "damaged")]


_Result = ReadRun | StillRunning | DamagedBundle


def _results(bundles: Sequence[Bundle]) -> Iterator[_Result]:
    """In the order of the bundles: many on all cores, few by way of the records that other commands keep."""
    if not worth_it(len(bundles)):
        with DerivedRecords() as records:
            for bundle in bundles:
                try:
                    yield read_run(records.of(bundle), bundle.path.as_posix())
                except (StillRunning, DamagedBundle) as error:
                    yield error
        return
    paths = [str(bundle.path) for bundle in bundles]
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
            evidence = evidence_of(bundle)
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


def _leave_out(found: Gathered, bundles: Sequence[Bundle], folders: Sequence[Path]) -> None:
    """Copies and what else does not fit among the runs, told as a report tells it."""
    beside = folder_findings([run.trace() for run in found.runs], bundles, frozenset(folders))
    lines: dict[str, list[str]] = defaultdict(list)
    runs = []
    for run in found.runs:
        wrong = next((one for one in beside.get(Path(run.path), ()) if one.leaves_out), None)
        if wrong is not None and run.state != "left out":
            run = replace(run, state="left out", note=wrong.line(), counted=())
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


def _packed(kept: _Kept, found: Gathered) -> bytes:
    runs = {name: [signature, facts.as_list()] for name, (signature, facts) in kept.runs.items()}
    series = {facts.series for _, facts in kept.runs.values()}
    versions = {facts.versions for _, facts in kept.runs.values()}
    shared = {"series": {name: found.series[name] for name in series}}
    shared["versions"] = {name: found.versions[name] for name in versions}
    return json.dumps({"runs": runs, **shared}).encode()


def _kept(database: Database, parent: str, found: Gathered) -> _Kept:
    """Nothing where nothing was kept, or something else."""
    body = database.get(_name(parent)) if database.is_open else None
    if body is None:
        return _Kept()
    try:
        parsed = from_json(body, allow_inf_nan=False)
        runs = {name: (signature, RunFacts.of_list(facts)) for name, (signature, facts) in parsed["runs"].items()}
        series, versions = dict(parsed["series"]), dict(parsed["versions"])
    except (ValueError, TypeError, KeyError, AttributeError):  # its check holds, but not its content
        return _Kept()
    found.series |= series
    found.versions |= versions
    return _Kept(runs)


def _place(bundle: Bundle) -> tuple[str, str]:
    """The folder that a bundle lies in, and its name there."""
    return os.path.split(os.path.abspath(bundle.path))
