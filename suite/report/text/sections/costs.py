"""Where the time of an iteration goes, peak memory against the least that the layout needs, and GPU board energy."""

from collections.abc import Iterator, Sequence
from functools import partial

from suite.report.facts.costs import EnergyUse, Idle, PhaseMemory
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import inline, prose
from suite.report.formatting.grid import Column
from suite.report.formatting.numbers import GIB, UNKNOWN, gib, interval, number, percent
from suite.report.text.section import LABEL, Block, Shown, seconds, shown, table_of
from suite.spec.phases import ALL_NAMES
from suite.stats.intervals import Interval

#: Columns that a trainer's timers give at most.
_MOST_PARTS = 40
_BELOW_FLOOR = "(!) A peak below the floor, although no correct run needs less: doubt how the memory was measured."
_RESIDENT = (
    "On a CPU the peak is a process's resident set, which wanders with malloc's bookkeeping, most of all on several "
    "ranks: read floor/peak there as an indication."
)
_WHOLE = (
    "All processes, whole device: an even share of what a trainer's own processes hold on a node, libraries included, "
    "or what the whole device uses. It is held against no floor."
)


def phases(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.phases]
    if rows:
        measured = {phase.name for row in rows for phase in row.phases}
        columns = [(Column(name), seconds(name)) for name in ALL_NAMES if name in measured]
        columns.append((Column("iteration"), shown("iteration_seconds")))
        yield "Seconds per iteration, and share of it in percent."
        if any(row.setting.asynchronous for row in rows):
            yield (
                "Of asynchronous rows the seconds of the side that trains, without shares; generate is what it waits "
                "for samples."
            )
        if any(row.idle for row in rows):
            columns.append((Column("idle %"), shown("idle", _idle)))
            yield (
                "Idle: what ranks, on average, wait at the end of phases for the slowest one, barriers included, and "
                "the phase at whose end they wait longest."
            )
        if any(row.manifest.workload.critic and not row.setting.asynchronous for row in rows):
            columns.append((Column("samples/s of generate + train"), _without_scoring))
            yield "Samples/s of generate + train leave the scoring passes out, as DeepSpeed-Chat's own figures do."
        yield table_of([LABEL, *columns], rows)
    if rows := [row for row in model.rows if row.parts]:
        names = list(dict.fromkeys(cost.name for row in rows for cost in row.parts))[:_MOST_PARTS]
        columns = [(Column(inline(name)), seconds(name, "parts")) for name in names]
        yield (
            "What trainers time within phases, in seconds per iteration of the slowest rank, and share of the "
            "iteration:"
        )
        yield table_of([LABEL, *columns], rows)


def _idle(idle: Idle) -> str:
    return percent(idle.share) + (f", {inline(idle.most)}" if idle.seconds else "")


def _without_scoring(row: Row) -> str:
    kept, samples = [row.phase(name) for name in ("generate", "train")], row.samples_per_iteration
    seconds = sum(cost.seconds for cost in kept if cost)
    known = row.manifest.workload.critic and not row.setting.asynchronous and None not in kept
    return number(samples / seconds if known and samples and seconds else None)


def memory(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.memory]
    used = [row.memory for row in rows if row.memory]
    figures: list[Shown] = [
        (Column("peak GiB"), shown("memory.peak_bytes", gib)),
        (Column("peak is", False), shown("memory.peak_is", str)),
    ]
    if any(memory.run_peak_bytes.low is not None for memory in used):
        figures.append((Column("mean of runs [95 %]"), shown("memory.run_peak_bytes", _in_gib)))
    if any(memory.peak_is == "reserved" for memory in used):
        figures.append((Column("allocated GiB"), shown("memory.allocated_bytes", gib)))
        figures.append((Column("device GiB"), shown("memory.device_bytes", gib)))
    figures += [
        (Column("floor GiB"), shown("memory.floor_bytes", gib)),
        (Column("floor set by", False), shown("memory", lambda use: inline(use.floor_phase or UNKNOWN))),
        (Column("floor/peak %"), shown("memory.efficiency", lambda share: percent(share) + " (!)" * (share > 1))),
    ]
    if any(memory.allocation_retries for memory in used):
        figures.append((Column("retries"), shown("memory.allocation_retries", lambda count: number(count, 1))))
    notes = [_BELOW_FLOOR] if any((memory.efficiency or 0.0) > 1 for memory in used) else []
    notes += [_RESIDENT] if any(row.setting.device == "cpu" for row in rows) else []
    notes += [_WHOLE] if any(memory.peak_is in ("all processes", "whole device") for memory in used) else []
    if rows:
        yield table_of([LABEL, *figures], rows, notes)


def _in_gib(peaks: Interval) -> str:
    return interval(peaks.scaled(1 / GIB), bound_digits=1)


def memory_by_phase(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.memory and row.memory.by_phase]
    known = {one.name for row in rows if row.memory for one in row.memory.by_phase}
    if known:
        yield (
            "GiB in use at the peak of each phase (allocated on a GPU, resident on a CPU): mean of the runs' peaks "
            "[95 %], and the phase's own floor over the greatest of them in percent."
        )
        columns = [
            (Column(name), shown("memory.by_phase", partial(_peak, name))) for name in ALL_NAMES if name in known
        ]
        yield table_of([LABEL, *columns], rows)


def _peak(name: str, phases: Sequence[PhaseMemory]) -> str:
    for one in phases:
        if one.name == name:
            floor = "" if one.efficiency is None else f" ({percent(one.efficiency)})"
            return _in_gib(one.run_peak_bytes) + floor
    return UNKNOWN


def energy(model: ReportModel) -> Iterator[Block]:
    """A figure that is not valid says why."""
    rows = [row for row in model.rows if row.energy]
    columns = [
        (Column("J/sample"), shown("energy.joules_per_sample")),
        (Column("not valid, because", False), shown("energy", _doubt)),
    ]
    if rows:
        yield "GPU board energy."
        yield table_of([LABEL, *columns], rows)


def _doubt(energy: EnergyUse) -> str:
    return UNKNOWN if energy.valid else prose("; ".join(energy.reasons) or "not all runs were sampled")
