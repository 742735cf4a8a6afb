"""Whether the bundles of a folder fit each other: copies, names, repeats that are not there, runs at one time."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.facts import inner
from suite.bundle.findings import Among, Finding
from suite.bundle.record import Record
from suite.bundle.walk import ATTIC
from suite.spec.phases import TIMED_NAMES

#: Beside a bundle's folder: runs that are at work on a cluster, or were (docs/contracts.md).
_SUBMITTED = ".submitted"
#: Of no two runs do so many iterations last the same to this, which is what rounding to microseconds leaves.
_COPY_SECONDS, _COPY_ITERATIONS = 2e-6, 3
_PHASE_DIGITS, _COPY_PHASES = 9, 3
#: The end of a run and the beginning of the next one are written by one clock, one after the other.
_OVERLAP_SECONDS = 0.05
#: Names in one finding, and missing repeats that are counted.
_NAMED, _MOST_REPEATS = 5, 10_000
#: Facts that the record has of its run by the same names.
_OF_THE_RUN = ("manifest_hash", "plan", "repeat", "started", "ended")


@dataclass(frozen=True, slots=True)
class Trace:
    """What is asked of a run among others; ``seconds`` of its iterations, ``phases`` their means.

    ``host``: where the driver ran it with nothing beside it that it started too; null where it may have. ``start``: of
    the runs that it took turns with.
    """

    path: Path
    run_id: str
    manifest_hash: str
    plan: str
    repeat: int
    host: str | None
    started: float | None
    ended: float | None
    seconds: tuple[float, ...]
    phases: tuple[float, ...]
    digest: str | None
    start: str | None = None

    @classmethod
    def of(cls, path: Path, record: Record, digest: str | None) -> "Trace":
        """Of a bundle with its derived record."""
        run = record.run
        timed = (getattr(record.phases, name) for name in TIMED_NAMES) if record.phases else ()
        return cls(
            path=path,
            run_id=run.id,
            host=_host(record),
            seconds=record.iterations.seconds,
            phases=tuple(phase.seconds for phase in timed if phase),
            digest=digest,
            start=record.turns.start if record.turns else None,
            **{name: getattr(run, name) for name in _OF_THE_RUN},
        )


#: Runs that do not fit, each with the finding's name and its words.
_Found = Iterator[tuple[Trace, Among, str]]


def folder_findings(
    traces: Iterable[Trace], bundles: Collection[str] | None = None, named: Collection[Path] = ()
) -> dict[Path, tuple[Finding, ...]]:
    """By path of a bundle what does not fit the others; of copies it is the later one, once.

    ``bundles``: paths of all that there are, damaged ones and such that are being run too; null: only what reports are
    made without is looked for. ``named``: folders that somebody named themselves, beside which others may well be.
    """
    ordered = sorted(traces, key=lambda trace: (trace.started or 0.0, str(trace.path)))
    all_found = [*_copies(ordered), *_run_ids(ordered)]
    if bundles is not None:
        all_found += [*_folder_names(ordered), *_missing_repeats(ordered, bundles, named), *_overlaps(ordered)]
    found: dict[Path, tuple[Finding, ...]] = {}
    for trace, name, text in all_found:
        found[trace.path] = (*found.get(trace.path, ()), Finding(name=name, text=text))
    return found


def _host(record: Record) -> str | None:
    driver, launcher = record.environment.driver, record.run.launcher
    host = inner(driver, "host", "host")
    alone = launcher == "local" or (launcher == "docker" and inner(driver, "runs_at_once") == 1)
    return host if isinstance(host, str) and alone else None


def _copies(traces: Sequence[Trace]) -> _Found:
    """The same run twice, and iterations or phases that last as long as those of another: of no two runs of a manifest
    do start and iterations last the same to the last digit. What never varies proves nothing."""
    whole: dict[tuple, Trace] = {}
    near: dict[tuple[int, int], list[Trace]] = defaultdict(list)
    equal: dict[tuple[str, tuple[float, ...]], Trace] = {}  # of one row: among all runs of a large folder two may agree
    for trace in traces:
        key = (trace.manifest_hash, trace.started, trace.seconds or (trace.run_id, trace.ended))
        first = whole.setdefault(key, trace)
        if first is not trace:
            yield trace, "copied-run", f"the same run as {first.path}"
            continue
        if len(set(trace.seconds)) < 2:
            continue
        place, count = round(trace.seconds[0] / _COPY_SECONDS), len(trace.seconds)
        around = (other for step in (-1, 0, 1) for other in near.get((place + step, count), ()))
        alike = next((other for other in around if _same_seconds(other.seconds, trace.seconds)), None)
        near[place, count].append(trace)
        if alike is not None:
            yield trace, "copied-seconds", f"its {count} iterations took as long as those of {alike.path}"
            continue
        phases = tuple(round(seconds, _PHASE_DIGITS) for seconds in trace.phases if seconds > 0)
        same = equal.setdefault((trace.manifest_hash, phases), trace) if len(phases) >= _COPY_PHASES else trace
        if same is not trace:
            yield trace, "copied-seconds", f"its {len(phases)} phases took as long as those of {same.path}"


def _same_seconds(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """To rounding; so few that they may agree by chance, to the last digit."""
    if len(one) < _COPY_ITERATIONS:
        return one == other
    return all(abs(left - right) <= _COPY_SECONDS for left, right in zip(one, other, strict=True))


def _run_ids(traces: Sequence[Trace]) -> _Found:
    """One folder of results has a run once; folders beside each other are results of their own."""
    by_id: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        by_id[trace.run_id].append(trace)
    for same in by_id.values():
        if len(same) == 1:
            continue
        ordered = sorted(same, key=lambda trace: (len(trace.path.parts), trace.path.name != trace.run_id, trace.path))
        first_in: dict[Path, Trace] = {}  # a run that comes again every night is in many folders
        for trace in ordered:
            parents = Path(os.path.abspath(trace.path)).parents
            above = next((first_in[folder] for folder in reversed(parents) if folder in first_in), None)
            first_in.setdefault(parents[0], trace)
            if above is not None and (trace.digest is None or trace.digest != above.digest):
                yield trace, "run-id", f"is run {trace.run_id} with other content than {above.path}"


def _folder_names(traces: Sequence[Trace]) -> _Found:
    for trace in traces:
        if trace.path.name == trace.run_id:
            continue
        path = Path(os.path.realpath(trace.path))  # "." has no name
        kept_aside = path.parent.name == ATTIC and path.name.startswith(f"{trace.run_id}.")
        if path.name != trace.run_id and not kept_aside:
            yield trace, "folder-name", f"the folder of run {trace.run_id} has another name"


def _missing_repeats(traces: Sequence[Trace], bundles: Collection[str], named: Collection[Path]) -> _Found:
    """Repeats are numbered from 1: a hole is a run that is not there, since one that failed leaves its bundle."""
    rows: dict[tuple[str, str], list[Trace]] = defaultdict(list)
    for trace in traces:
        row = trace.run_id.removesuffix(f"-r{trace.repeat}")
        if row != trace.run_id and trace.path not in named:
            rows[os.path.dirname(trace.path), row].append(trace)
    for (folder, row), runs in rows.items():
        known = {trace.repeat for trace in runs}
        last = min(max(known), _MOST_REPEATS)
        missing = [number for number in range(1, last) if number not in known]
        ids = [name for name in (f"{row}-r{number}" for number in missing) if os.path.join(folder, name) not in bundles]
        ids = [name for name in ids if not os.path.lexists(os.path.join(folder, _SUBMITTED, f"{name}.json"))]
        if ids:
            more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
            first = min(runs, key=lambda trace: trace.repeat)
            yield first, "missing-repeat", f"{', '.join(ids[:_NAMED])}{more} of {last} repeats not in {folder or '.'}"


def _overlaps(traces: Sequence[Trace]) -> _Found:
    """Runs of a plan on one host follow each other, unless they were asked for at one time or took turns."""
    last: dict[tuple[str, str], tuple[float, Trace]] = {}
    for trace in traces:
        if trace.host is None or trace.started is None or trace.ended is None:
            continue
        end, before = last.get((trace.plan, trace.host), (trace.started, trace))
        took_turns = before.start is not None and before.start == trace.start
        both = min(end, trace.ended) - trace.started
        if both > _OVERLAP_SECONDS and before.started != trace.started and not took_turns:
            yield trace, "overlapping-runs", f"ran for {both:.6g} s at the same time on {trace.host} as {before.path}"
        if trace.ended >= end:
            last[trace.plan, trace.host] = (trace.ended, trace)
