"""From runs to rows: the repeats of one manifest in one launch on one kind of machine are one row."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from suite.bundle.record import Counts, Record
from suite.report.facts import costs
from suite.report.facts.conventions import clock_of
from suite.report.facts.entry import SUITE_CLOCK, Entry, Setting, WorkKind, grouped, kind_of
from suite.report.facts.machines import assign_machines
from suite.report.facts.rollout import Rollout, lengths_hash_of, rollout_of
from suite.report.facts.suspect import is_invalid, is_suspect, pooled, takes_suspect
from suite.report.facts.variants import LaunchSetting, assign_launches, launch_setting_of, variants
from suite.spec.manifest import Manifest
from suite.stats.intervals import Interval, RunSeconds, log_rates, pooled_rate
from suite.stats.moderated import Prior, mean_of, slow_runs
from suite.stats.rounds import InTurns, Turn
from suite.theory.parameters import parameter_count

_UNSTEADY = ("drifting", "no steady state")


@dataclass(frozen=True)
class TwoModes:
    """So many runs are slower than the others by more than noise; ``loss`` is the share of the others' rate."""

    slow: int
    loss: float


@dataclass(frozen=True)
class Row:
    """One configuration: the runs of equal manifest hash in one launch. Figures come only from runs that succeeded.

    ``entries``: all runs, in the order of their repeats; ``shown``: the one that stands for them. ``started``: of the
    runs in ``measured``, in Unix seconds. ``turns``: in which round of which plan and launch each of them was made,
    null where that is not known. ``phase_seconds``: of runs in turns by iteration, of their counted iterations by
    phase; empty where a run was alone. ``holds_suspect``: suspect runs are in ``measured``. ``is_ranked``: not where
    all its runs are suspect, unless they are asked for. ``prior``: what its runs' variance shares with other rows'.
    """

    number: int
    entries: tuple[Entry, ...]
    shown: Entry
    launch: LaunchSetting
    size: str
    ranks: int
    backend: str
    layout: str
    work: WorkKind
    setting: Setting
    variant: str
    work_hash: str
    lengths_hash: str
    runs: int
    runs_ok: int
    runs_interrupted: int
    runs_suspect: int
    runs_invalid: int
    doubts: tuple[str, ...]
    holds_suspect: bool
    is_ranked: bool
    measured: tuple[RunSeconds, ...]
    started: tuple[float, ...]
    turns: tuple[Turn | None, ...]
    samples_per_iteration: int | None
    iteration_seconds: float | None
    utilisation: dict[str, float | None]
    void_iterations: int
    verdicts: tuple[tuple[str, int], ...]
    unsteady_reasons: tuple[str, ...]
    phases: tuple[costs.PhaseCost, ...]
    phase_seconds: tuple[dict[str, tuple[float, ...]], ...]
    parts: tuple[costs.PhaseCost, ...]
    idle: costs.Idle | None
    rollout: Rollout
    counts: Counts | None
    work_differences: tuple[str, ...]
    lacking_phases: dict[str, str]
    memory: costs.MemoryUse | None
    occupied_bytes: int | None
    energy: costs.EnergyUse | None
    expected: costs.Expected | None
    prior: Prior | None = None

    @property
    def name(self) -> str:
        return f"R{self.number}"

    @property
    def manifest(self) -> Manifest:
        return self.entries[0].manifest

    @cached_property
    def samples_per_second(self) -> Interval | None:
        return unbounded(pooled_rate(self.measured, self.prior), len(self.measured)) if self.measured else None

    @property
    def tokens_per_second(self) -> Interval | None:
        if self.samples_per_second is None or self.counts is None:
            return None
        tokens = self.counts.prompt_tokens + self.counts.response_tokens
        return self.samples_per_second.scaled(tokens / self.counts.samples)

    @property
    def tokens_per_second_per_device(self) -> Interval | None:
        return self.tokens_per_second.scaled(1 / self.ranks) if self.tokens_per_second else None

    @cached_property
    def two_modes(self) -> TwoModes | None:
        logs = log_rates(self.measured)
        apart = slow_runs(logs, self.prior) if self.is_ranked else ()
        slow, others = [logs[index] for index in apart], [log for index, log in enumerate(logs) if index not in apart]
        return TwoModes(len(slow), 1 - math.exp(mean_of(slow) - mean_of(others))) if slow else None

    def phase(self, name: str) -> costs.PhaseCost | None:
        """Null where not all of its runs know it."""
        return next((phase for phase in self.phases if phase.name == name), None)

    @property
    def phase_names(self) -> set[str]:
        return {phase.name for phase in self.phases}

    @property
    def without_rate(self) -> str:
        """What stands in the place of a rate: why no run of the row has one."""
        if self.runs_ok:
            return "invalid" if self.runs_invalid else "no valid iteration"
        return "interrupted" if self.runs_interrupted == self.runs else "failed"

    @property
    def ok_runs(self) -> str:
        """How many runs ended well, and how many of these are doubtful."""
        kinds = ((self.runs_suspect, "suspect"), (self.runs_invalid, "invalid"))
        return ", ".join([f"{self.runs_ok} of {self.runs}", *(f"{count} {kind}" for count, kind in kinds if count)])

    @property
    def unsteady_runs(self) -> int:
        """Measured runs whose iterations drifted or spread too far."""
        return sum(count for verdict, count in self.verdicts if verdict in _UNSTEADY)


def pool_rows(entries: Iterable[Entry], with_suspect: bool = False) -> tuple[Row, ...]:
    """Numbered from 1; ``with_suspect``: suspect runs are pooled in all rows, not only in those measured so."""
    entries = sorted(entries, key=lambda entry: (entry.record.run.id, entry.path))
    places = zip(assign_machines(entries), assign_launches(entries), strict=True)
    found = grouped(((entry.manifest.hash, *place), entry) for entry, place in zip(entries, places, strict=True))
    groups = sorted(((machine, launch, alike) for (_, machine, launch), alike in found.items()), key=_order)
    names = variants([(machine, alike[0].manifest, launch.settings()) for machine, launch, alike in groups])
    return tuple(
        _row(number, *group, variant, with_suspect)
        for number, (group, variant) in enumerate(zip(groups, names, strict=True), start=1)
    )


def _order(group: tuple[str, LaunchSetting, list[Entry]]) -> tuple:
    """PPO first, then small models, few ranks, weak before strong, then by name; the hash settles the rest."""
    machine, launch, entries = group
    manifest = entries[0].manifest
    size, layout, workload = manifest.size, manifest.layout, manifest.workload
    work = (kind_of(manifest), parameter_count(size).total, size.name)
    setting = (machine, manifest.backend.kind, manifest.track)
    where = (layout.ranks, layout.nodes, workload.name, workload.scaling == "strong", manifest.work_hash)
    return (*work, *setting, *where, manifest.backend.name, layout.label(), manifest.hash, *map(str, launch))


def _row(
    number: int, machine: str, launch: LaunchSetting, entries: list[Entry], variant: str, with_suspect: bool
) -> Row:
    entries = sorted(entries, key=lambda entry: (entry.record.run.repeat, entry.record.run.id, entry.path))
    manifest = entries[0].manifest
    with_suspect = with_suspect or any(takes_suspect(entry.manifest) for entry in entries)
    records = [entry.record for entry in entries if entry.record.status == "ok"]
    measured = pooled([record for record in records if measured_run(record)], with_suspect)
    holds_suspect = any(map(is_suspect, measured))
    counts = measured[0].counts if measured else None
    runs = tuple(filter(None, map(measured_run, measured)))
    iterations = sum(len(run.seconds) for run in runs)
    phases = costs.phases_of(measured)
    whole = sum(phase.seconds for phase in phases)
    return Row(
        number=number,
        entries=tuple(entries),
        shown=next((entry for entry in entries if entry.record.status == "ok"), entries[0]),
        launch=launch,
        size=manifest.size.name,
        ranks=manifest.layout.ranks,
        backend=manifest.backend.name,
        layout=manifest.layout.label(),
        work=kind_of(manifest),
        setting=setting_of(manifest, machine, clock_of(entries)),
        variant=variant,
        work_hash=manifest.work_hash,
        lengths_hash=lengths_hash_of(manifest),
        runs=len(entries),
        runs_ok=len(records),
        runs_interrupted=sum(entry.record.status == "interrupted" for entry in entries),
        runs_suspect=sum(map(is_suspect, records)),
        runs_invalid=sum(map(is_invalid, records)),
        doubts=tuple(dict.fromkeys(why for one in records if one.validity for why in one.validity.reasons)),
        holds_suspect=holds_suspect,
        is_ranked=with_suspect or not holds_suspect,
        measured=runs,
        started=tuple(record.run.started for record in measured if record.run.started is not None),
        turns=tuple(turn_of(record, launch) for record in measured),
        samples_per_iteration=counts.samples if counts else None,
        iteration_seconds=sum(sum(run.seconds) for run in runs) / iterations if iterations else None,
        utilisation={name: costs.over_time(measured, name) for name in ("mfu", "hfu", "hfu_causal", "mbu")},
        void_iterations=sum(len(record.void_iterations or ()) for record in records),
        verdicts=tuple(sorted(Counter(one.steady_state.verdict or "too short to tell" for one in measured).items())),
        unsteady_reasons=tuple(sorted({reason for record in measured for reason in record.steady_state.reasons})),
        phases=phases,
        phase_seconds=costs.phase_seconds_of(measured),
        parts=costs.parts_of(measured, whole),
        idle=None if manifest.layout.asynchronous else costs.idle_of(measured, whole),
        rollout=rollout_of(measured),
        counts=counts,
        work_differences=tuple(
            dict.fromkeys(text for record in records for text in costs.texts_of(record, "work_differences"))
        ),
        lacking_phases=costs.lacking_phases_of(records),
        memory=costs.memory_of(pooled(records, with_suspect)),
        occupied_bytes=costs.occupied_of(measured),
        energy=costs.energy_of(measured),
        expected=costs.expected_of(records),
    )


def unbounded(estimate: Interval, *runs: int) -> Interval:
    """Without its bounds where it rests on a row of one run, which would not hold another. ``runs``: of each row."""
    return Interval(estimate.value, None, None) if min(runs) < 2 else estimate


def turn_of(record: Record, launch: LaunchSetting) -> Turn | None:
    """Runs of one plan that were launched alike took turns, repeat by repeat or, of one start, by iteration."""
    run, turns = record.run, record.turns
    if not run.plan or run.started is None:
        return None
    plan = " ".join((run.plan, *map(str, launch)))
    return Turn(plan, run.repeat, run.started, *((turns.start, record.counted, turns.begins) if turns else ()))


def measured_run(record: Record) -> RunSeconds | None:
    """Of a run that ended well; null where it has no rate."""
    if record.status != "ok" or record.throughput is None or record.counts is None:
        return None
    return RunSeconds(record.counts.samples, counted_seconds(record))


def runs_in_turns(records: Iterable[Record]) -> InTurns:
    """Those that have a rate, each with its turn."""
    found = [(run, turn_of(each, launch_setting_of(each))) for each in records if (run := measured_run(each))]
    return InTurns(tuple(run for run, _ in found), tuple(turn for _, turn in found))


def setting_of(manifest: Manifest, machine: str, clock: str = SUITE_CLOCK) -> Setting:
    of_measure = ("device", "precision", "threads_per_rank", "turns")
    return Setting(
        kind=manifest.backend.kind,
        track=manifest.track,
        machine=machine,
        asynchronous=manifest.layout.asynchronous,
        clock=clock,
        **{name: getattr(manifest.measure, name) for name in of_measure},
    )


def counted_seconds(record: Record) -> tuple[float, ...]:
    """Of the iterations that count."""
    return tuple(record.iterations.seconds[index] for index in record.counted)
