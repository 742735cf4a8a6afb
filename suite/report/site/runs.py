"""What a site keeps of a run: few enough facts that ten thousand of them are read in a moment; and the runs of many
folders, of which those that were read before and are as they were are not read again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from suite.bundle.archive.opening import Opened
from suite.bundle.cache.survey import Surveyed
from suite.bundle.cache.table import Derived, View, select
from suite.bundle.evidence import digest_of_all
from suite.bundle.folder import Trace, folder_findings
from suite.bundle.manifest_file import once_per_manifest
from suite.bundle.record import Record
from suite.bundle.store import DamagedBundle, StillRunning
from suite.report.facts.conventions import clock_of
from suite.report.facts.entry import Entry, kind_of
from suite.report.facts.environment import facts_of
from suite.report.facts.machines import hardware_of
from suite.report.facts.rollout import lengths_hash_of
from suite.report.facts.suspect import is_invalid, is_suspect, takes_suspect
from suite.report.facts.variants import launch_setting_of
from suite.report.facts.work import COUNTED, PASSES
from suite.report.reading import ALTERED, Caveat, left_out, lines_of
from suite.spec.base import digest
from suite.spec.manifest import Manifest
from suite.spec.phases import ALL_NAMES
from suite.stats.intervals import RunSeconds
from suite.theory.parameters import parameter_count

#: ``left out``: what it tells does not fit together; ``rateless``: it ended well and no iteration counts.
State = Literal["ok", "suspect", "invalid", "failed", "interrupted", "rateless", "left out"]
UNKNOWN_MACHINE = "unknown hardware"
_ID_CHARACTERS = 12
#: Of how a run was measured, what says how long, and which samples are drawn: the work's hash has these.
_NO_SERIES = {"warmup", "iterations", "seed"}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """``series`` and ``versions``: ids of ``facts`` and ``stack``, which runs share. ``samples`` of an iteration, of
    which ``counted`` ones count; none where it has no rate. ``low`` and ``high``: of its rate, by its iterations."""

    trace: Trace
    series: str
    facts: dict[str, Any]
    versions: str
    stack: dict[str, str]
    state: State
    note: str
    samples: int
    counted: tuple[int, ...]
    low: float | None
    high: float | None
    phases: dict[str, float]
    caveat: str

    def measured(self) -> RunSeconds | None:
        """The iterations that count; null where it has no rate."""
        if not self.counted:
            return None
        return RunSeconds(self.samples, tuple(self.trace.seconds[index] for index in self.counted))


def read_run(derived: Derived) -> RunFacts:
    """Of what a bundle's evidence gives."""
    manifest, record = derived.manifest, derived.record
    facts, stack = series_facts(manifest, record), versions_of(record)
    state, note = _state(derived)
    throughput, counts = record.throughput, record.counts
    has_rate = state in ("ok", "suspect") and throughput is not None and counts is not None
    rate = throughput.samples_per_second if throughput else None
    phases = [(name, getattr(record.phases, name)) for name in ALL_NAMES] if record.phases else []
    return RunFacts(
        trace=Trace.of(Path(), record, derived.digest),
        series=_id_of(facts),
        facts=facts,
        versions=_id_of(stack),
        stack=stack,
        state=state,
        note=note,
        samples=counts.samples if counts else 0,
        counted=record.counted if has_rate else (),
        low=rate.low if rate else None,
        high=rate.high if rate else None,
        phases={name: phase.seconds for name, phase in phases if phase} if has_rate else {},
        caveat=derived.difference,
    )


def series_facts(manifest: Manifest, record: Record) -> dict[str, Any]:
    """What all runs of a series share: no stack and no image, as versions are what a history is about. ``work`` is
    equal for series whose rates can be compared at all."""
    launch, hardware = launch_setting_of(record), hardware_of(record)
    work, settings, facts = _asked(manifest)
    return {
        "work": digest([*work, _done(record)]),
        "settings": digest([*settings, launch.started]),
        **facts,
        "launcher": launch.launcher or "",
        "at_once": launch.at_once or 1,
        "clock": clock_of([Entry(manifest, record, "")]),
        "machine": machine_name(hardware),
    }


@once_per_manifest
def _asked(manifest: Manifest) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """What a manifest alone says of its series: of the work, of how it is laid out and measured, and in words."""
    size, layout, workload, measure = manifest.size, manifest.layout, manifest.workload, manifest.measure
    work = [manifest.work_hash, lengths_hash_of(manifest), layout.ranks, measure.precision]
    settings = [layout.model_dump(mode="json"), measure.model_dump(mode="json", exclude=_NO_SERIES)]
    facts = {
        "size": size.name,
        "parameters": parameter_count(size).total,
        "backend": manifest.backend.name,
        "kind": manifest.backend.kind,
        "ranks": layout.ranks,
        "nodes": layout.nodes,
        "layout": layout.label(),
        "workload": workload.name,
        "algorithm": kind_of(manifest).text,
        "scaling": workload.scaling,
        "track": manifest.track,
        "device": measure.device,
        "precision": measure.precision,
        "threads": measure.threads_per_rank,
    }
    return work, settings, facts


def machine_name(hardware: Sequence[str] | None) -> str:
    """``Xeon, 8 cores, 16 threads``; ``H100, 79.6 GiB, 18 NVLinks, 400 Gb/s InfiniBand``."""
    if not hardware:
        return UNKNOWN_MACHINE
    units = ("", " cores", " threads") if hardware[0] == "cpu" else ("", " GiB", "", "")
    known = [f"{text}{unit}" for text, unit in zip(hardware[1:], units, strict=False) if text]
    return ", ".join(known) or UNKNOWN_MACHINE


def versions_of(record: Record) -> dict[str, str]:
    """Versions of the suite and of everything below it, the suite's commit and the image, as far as a run tells."""
    facts = facts_of([record])
    return {name: values[0] for name, (kind, values) in sorted(facts.items()) if kind == "version"}


def _done(record: Record) -> list[Any]:
    """Of a trainer what it counted and which passes it made; an engine does what was asked."""
    if record.run.backend_kind == "engine" or record.counts is None:
        return []
    passes = [bool(record.phases and getattr(record.phases, name)) for name in PASSES]
    return [*(getattr(record.counts, name) for name in ("samples", *COUNTED)), *passes]


def _state(derived: Derived) -> tuple[State, str]:
    record = derived.record
    wrong = next((finding for finding in derived.findings if finding.leaves_out), None)
    if wrong is not None:
        return "left out", wrong.line()
    if record.status != "ok":
        failure = record.failure
        where = f" in {failure.phase}" if failure and failure.phase else ""
        return record.status, f"{failure.kind}{where}" if failure else record.status
    reasons = "; ".join(record.validity.reasons) if record.validity else ""
    if is_invalid(record):
        return "invalid", reasons
    if record.throughput is None or record.counts is None:
        return "rateless", "no iteration counts"
    is_left_out = is_suspect(record) and not takes_suspect(derived.manifest)
    return ("suspect", reasons) if is_left_out else ("ok", "")


def _id_of(facts: Mapping[str, Any]) -> str:
    return digest(dict(facts))[:_ID_CHARACTERS]


RUNS = View("site", ("report",), read_run, RunFacts)


@dataclass
class Gathered:
    """``told``: what a reader must know of the reading; ``read``: how many bundles were read now; ``is_kept``: all is
    found again as long as no file changes."""

    runs: list[RunFacts] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    read: int = 0
    is_kept: bool = False

    @property
    def digest(self) -> str | None:
        """Over the evidence of all runs, as `suite verify` prints it; null where a run has none."""
        digests = [run.trace.digest for run in self.runs]
        return digest_of_all(filter(None, digests)) if digests and None not in digests else None


def gather(bundles: Sequence[Surveyed], places: Opened) -> Gathered:
    found = Gathered()
    unread: list[Caveat] = []
    # once in memory, however many runs share it
    every_facts: dict[str, dict[str, Any]] = {}
    every_stack: dict[str, dict[str, str]] = {}

    def count(done: int, whole: int) -> None:
        found.read = whole

    for bundle, result in zip(bundles, select(bundles, RUNS, places.holds, count), strict=True):
        if isinstance(result, StillRunning | DamagedBundle):
            unread.append(left_out(bundle.path, result))
        else:
            trace = replace(result.trace, path=Path(bundle.path))
            facts = every_facts.setdefault(result.series, result.facts)
            stack = every_stack.setdefault(result.versions, result.stack)
            found.runs.append(replace(result, trace=trace, facts=facts, stack=stack))
    found.is_kept = not unread and all(one.signature and one.signature.is_settled for one in bundles)
    found.runs.sort(key=lambda run: (run.trace.started or 0.0, run.trace.run_id, run.trace.path.as_posix()))
    caveats = sorted((*unread, *_leave_out(found)), key=lambda caveat: caveat.kind)
    found.told = list(map(places.shown, lines_of(caveats)))
    return found


def _leave_out(found: Gathered) -> Iterator[Caveat]:
    """Copies and what else does not fit among the runs, told as a report tells it."""
    beside = folder_findings([run.trace for run in found.runs])
    runs = []
    for run in found.runs:
        wrong = beside.get(run.trace.path)
        if wrong and run.state != "left out":
            run = replace(run, state="left out", note=wrong[0].line(), counted=())
        if run.state == "left out":
            yield Caveat(run.note.partition(":")[0], str(run.trace.path), f"left out, {run.note}")
        if run.caveat:
            yield Caveat(ALTERED, str(run.trace.path), f"{ALTERED}, which are shown: {run.caveat}")
        runs.append(run)
    found.runs = runs
