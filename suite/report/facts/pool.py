"""From runs to rows: the repeats of one manifest in one launch on one kind of machine are one row."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from suite.bundle.record import Counts, Record
from suite.report.facts import costs, rollout
from suite.report.facts.conventions import clock_of
from suite.report.facts.entry import SUITE_CLOCK, Entry, Setting, WorkKind, grouped, kind_of
from suite.report.facts.suspect import doubts_of, is_invalid, is_suspect, pooled, takes_suspect
from suite.report.facts.variants import LaunchSetting, assign_launches, launch_setting_of, rerun_options, variants
from suite.spec.base import digest
from suite.spec.manifest import Manifest
from suite.spec.workload import Scaling
from suite.stats.intervals import Interval, RunSeconds, pooled_rate
from suite.stats.moderated import Prior
from suite.stats.rounds import InTurns, Turn
from suite.theory.parameters import parameter_count

_UNSTEADY = ("drifting", "no steady state")


@dataclass(frozen=True)
class TwoModes:
    """So many of the runs are slower than the others by more than noise; ``loss`` is the share of the others' rate."""

    slow: int
    runs: int
    loss: float


@dataclass(frozen=True)
class Row:
    """One configuration: the runs of equal manifest hash in one launch. Figures come only from runs that succeeded.

    ``started``: of the runs in ``measured``, in Unix seconds. ``turns``: in which round of which plan and launch each
    of them was made, null where that is not known. ``phase_seconds``: of runs in turns by iteration, of their counted
    iterations by phase; empty where a run was alone. ``holds_suspect``: suspect runs are in ``measured``.
    ``is_ranked``: not where all its runs are suspect, unless they are asked for. ``unseeded_hash``: equal for rows that
    differ in their seed alone. ``prior``: what its runs' variance shares with other rows'.
    """

    number: int
    size: str
    parameters: int
    ranks: int
    nodes: int
    backend: str
    layout: str
    strategy: str
    workload: str
    work: WorkKind
    separate_critic: bool
    scaling: Scaling
    setting: Setting
    launcher: str | None
    variant: str
    manifest_hash: str
    work_hash: str
    lengths_hash: str
    series_hash: str
    unseeded_hash: str
    seed: int
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
    samples_per_second: Interval | None
    tokens_per_second: Interval | None
    tokens_per_second_per_device: Interval | None
    iteration_seconds: float | None
    mfu: float | None
    hfu: float | None
    hfu_causal: float | None
    mbu: float | None
    unknown_utilisation: str | None
    void_iterations: int
    verdicts: tuple[tuple[str, int], ...]
    unsteady_reasons: tuple[str, ...]
    phases: tuple[costs.PhaseCost, ...]
    phase_seconds: tuple[dict[str, tuple[float, ...]], ...]
    parts: tuple[costs.PhaseCost, ...]
    idle: costs.Idle | None
    unevenness: rollout.Unevenness | None
    generation: rollout.Generation | None
    asynchronous: rollout.Asynchronous | None
    counts: Counts | None
    work_differences: tuple[str, ...]
    lacking_phases: tuple[tuple[str, str], ...]
    memory: costs.MemoryUse | None
    occupied_bytes: int | None
    energy: costs.EnergyUse | None
    expected: costs.Expected | None
    run_ids: tuple[str, ...]
    paths: tuple[str, ...]
    path: str
    rerun_options: tuple[str, ...] = ()
    prior: Prior | None = None
    two_modes: TwoModes | None = None

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

    @property
    def name(self) -> str:
        return f"R{self.number}"


@dataclass(frozen=True)
class RowRuns:
    """Of one row, in the order of their repeats."""

    machine: str
    launch: LaunchSetting
    entries: tuple[Entry, ...]

    @property
    def manifest(self) -> Manifest:
        return self.entries[0].manifest


def group_entries(entries: Sequence[Entry], machines: Sequence[str]) -> list[RowRuns]:
    """By manifest, machine and launch, in the order of the rows."""
    launched = zip(entries, machines, assign_launches(entries), strict=True)
    found = grouped(((entry.manifest.hash, machine, launch), entry) for entry, machine, launch in launched)
    for group in found.values():
        group.sort(key=lambda entry: (entry.record.run.repeat, entry.record.run.id, entry.path))
    return sorted((RowRuns(*key[1:], tuple(group)) for key, group in found.items()), key=_order)


def pool_rows(groups: Sequence[RowRuns], with_suspect: bool = False) -> tuple[Row, ...]:
    """Numbered from 1; ``with_suspect``: suspect runs are pooled in all rows, not only in those measured so."""
    names = variants([(group.machine, group.manifest, group.launch.settings()) for group in groups])
    return tuple(
        _row(number, group, variant, with_suspect)
        for number, (group, variant) in enumerate(zip(groups, names, strict=True), start=1)
    )


def _order(runs: RowRuns) -> tuple:
    """PPO first, then small models, few ranks, weak before strong, then by name; the hash settles the rest."""
    manifest = runs.manifest
    size, layout, workload = manifest.size, manifest.layout, manifest.workload
    work = (kind_of(manifest), parameter_count(size).total, size.name)
    setting = (runs.machine, manifest.backend.kind, manifest.track)
    where = (layout.ranks, layout.nodes, workload.name, workload.scaling == "strong", manifest.work_hash)
    return (*work, *setting, *where, manifest.backend.name, layout.label(), manifest.hash, *map(str, runs.launch))


def _row(number: int, group: RowRuns, variant: str, with_suspect: bool) -> Row:
    manifest, machine, entries = group.manifest, group.machine, group.entries
    with_suspect = with_suspect or any(takes_suspect(entry.manifest) for entry in entries)
    records = [entry.record for entry in entries if entry.record.status == "ok"]
    with_rate = [record for record in records if record.throughput is not None and record.counts is not None]
    measured = pooled(with_rate, with_suspect)
    holds_suspect = any(map(is_suspect, measured))
    counts = measured[0].counts if measured else None
    runs = tuple(RunSeconds(record.counts.samples, counted_seconds(record)) for record in measured if record.counts)
    rate = unbounded(pooled_rate(runs), len(runs)) if runs else None
    tokens = (counts.prompt_tokens + counts.response_tokens) / counts.samples if counts else 0.0
    iterations = sum(len(run.seconds) for run in runs)
    phases = costs.phases_of(measured)
    whole = sum(phase.seconds for phase in phases)
    shown = next((entry for entry in entries if entry.record.status == "ok"), entries[0])
    return Row(
        number=number,
        size=manifest.size.name,
        parameters=parameter_count(manifest.size).total,
        ranks=manifest.layout.ranks,
        nodes=manifest.layout.nodes,
        backend=manifest.backend.name,
        layout=manifest.layout.label(),
        strategy=manifest.layout.strategy(),
        workload=manifest.workload.name,
        work=kind_of(manifest),
        separate_critic=manifest.workload.critic is not None,
        scaling=manifest.workload.scaling,
        setting=setting_of(manifest, machine, clock_of(entries)),
        launcher=group.launch.launcher,
        variant=variant,
        manifest_hash=manifest.hash,
        work_hash=manifest.work_hash,
        lengths_hash=rollout.lengths_hash_of(manifest),
        series_hash=series_hash(manifest, machine, group.launch),
        unseeded_hash=unseeded_hash(manifest, machine, group.launch),
        seed=manifest.measure.seed,
        runs=len(entries),
        runs_ok=len(records),
        runs_interrupted=sum(entry.record.status == "interrupted" for entry in entries),
        runs_suspect=sum(map(is_suspect, records)),
        runs_invalid=sum(map(is_invalid, records)),
        doubts=doubts_of(records),
        holds_suspect=holds_suspect,
        is_ranked=with_suspect or not holds_suspect,
        measured=runs,
        started=tuple(record.run.started for record in measured if record.run.started is not None),
        turns=tuple(turn_of(record, group.launch) for record in measured),
        samples_per_iteration=counts.samples if counts else None,
        samples_per_second=rate,
        tokens_per_second=rate.scaled(tokens) if rate else None,
        tokens_per_second_per_device=rate.scaled(tokens / manifest.layout.ranks) if rate else None,
        iteration_seconds=sum(sum(run.seconds) for run in runs) / iterations if iterations else None,
        mfu=costs.over_time(measured, "mfu"),
        hfu=costs.over_time(measured, "hfu"),
        hfu_causal=costs.over_time(measured, "hfu_causal"),
        mbu=costs.over_time(measured, "mbu"),
        unknown_utilisation=costs.unknown_utilisation_of(measured),
        void_iterations=sum(len(record.void_iterations or ()) for record in records),
        verdicts=tuple(sorted(Counter(one.steady_state.verdict or "too short to tell" for one in measured).items())),
        unsteady_reasons=tuple(sorted({reason for record in measured for reason in record.steady_state.reasons})),
        phases=phases,
        phase_seconds=costs.phase_seconds_of(measured),
        parts=costs.parts_of(measured, whole),
        idle=None if manifest.layout.asynchronous else costs.idle_of(measured, whole),
        unevenness=rollout.unevenness_of(manifest, measured),
        generation=rollout.generation_of(manifest, measured),
        asynchronous=rollout.asynchronous_of(manifest, measured),
        counts=counts,
        work_differences=tuple(
            dict.fromkeys(text for record in records for text in costs.texts_of(record, "work_differences"))
        ),
        lacking_phases=costs.lacking_phases_of(records),
        memory=costs.memory_of(pooled(records, with_suspect)),
        occupied_bytes=costs.occupied_of(measured),
        energy=costs.energy_of(measured),
        expected=costs.expected_of(records),
        run_ids=tuple(entry.record.run.id for entry in entries),
        paths=tuple(entry.path for entry in entries),
        path=shown.path,
        rerun_options=rerun_options(manifest, group.launch, shown.record),
    )


def unbounded(estimate: Interval, *runs: int) -> Interval:
    """Without its bounds where it rests on a row of one run, which would not hold another. ``runs``: of each row."""
    return Interval(estimate.value, None, None) if min(runs) < 2 else estimate


def turn_of(record: Record, launch: LaunchSetting) -> Turn | None:
    """Runs of one plan that were launched alike took turns, repeat by repeat or, of one start, by iteration."""
    run, turns = record.run, record.turns
    if not run.plan or run.started is None:
        return None
    plan = " ".join((run.plan, *(part or "-" for part in launch.place())))
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


def series_hash(manifest: Manifest, machine: str, launch: LaunchSetting) -> str:
    """Equal hashes are points of one scaling curve: all is equal but ranks and samples."""
    no_series = {"name", "note", "source", "scaling", "rollouts"}
    return digest(
        {
            "backend": manifest.backend.model_dump(mode="json"),
            "size": manifest.size.model_dump(mode="json", exclude={"note", "source"}),
            "workload": manifest.workload.model_dump(mode="json", exclude=no_series),
            "strategy": manifest.layout.strategy(),
            "measure": manifest.measure.model_dump(mode="json", exclude={"warmup", "iterations"}),
            "track": manifest.track,
            "stack": manifest.stack_identity,
            "machine": machine,
            "place": launch.place(),
        }
    )


def unseeded_hash(manifest: Manifest, machine: str, launch: LaunchSetting) -> str:
    """Equal hashes are one configuration, with whatever seed."""
    kept = manifest.model_dump(mode="json", exclude={"run", "hash", "work_hash"})
    kept["measure"].pop("seed", None)
    kept["work"].pop("lengths", None)
    return digest({"manifest": kept, "machine": machine, "place": launch.place()})


def counted_seconds(record: Record) -> tuple[float, ...]:
    """Of the iterations that count."""
    return tuple(record.iterations.seconds[index] for index in record.counted)
