"""The model as tables of finished cells, escaped for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.failures import FailureRow
from suite.report.facts.machines import Machine
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.scaling import Curve, Point
from suite.report.formatting.escape import code, inline, prose
from suite.report.formatting.grid import Column, Notes, Table
from suite.report.formatting.numbers import UNKNOWN, gib, interval, number, percent
from suite.spec.phases import ALL_NAMES, TIMED_NAMES

#: A column with what it shows of a row.
Shown = tuple[Column, Callable[[Row], str]]

IDENTITY: tuple[Shown, ...] = (
    (Column("row", False), lambda row: row.name),
    (Column("size", False), lambda row: inline(row.size)),
    (Column("ranks"), lambda row: str(row.ranks)),
    (Column("backend", False), lambda row: inline(row.backend)),
    (Column("layout", False), lambda row: row.layout),
)
_MOST_NAMED = 12
_BELOW_FLOOR = (
    "(!) A peak below the floor: kept, and a reason to doubt how memory was told, for no correct run needs less."
)
_ABOVE_PEAK = "Above 100 %: kept, and a reason to doubt the time or the device's name, for no device passes its peak"
#: Shown where rows differ in them; where all are alike one line says it.
_VARYING: tuple[Shown, ...] = (
    (Column("kind", False), lambda row: row.setting.kind),
    (Column("track", False), lambda row: row.setting.track),
    (Column("machine", False), lambda row: row.setting.machine),
    (Column("device", False), lambda row: row.setting.device),
    (Column("precision", False), lambda row: row.setting.precision),
    (Column("threads/rank"), lambda row: str(row.setting.threads_per_rank)),
    (Column("workload", False), lambda row: inline(row.workload)),
    (Column("scaling", False), lambda row: row.scaling),
    (Column("nodes"), lambda row: str(row.nodes)),
    (Column("variant", False), lambda row: inline(row.variant) if row.variant else UNKNOWN),
)


def varying(rows: Sequence[Row]) -> tuple[Shown, ...]:
    """The columns in which rows differ."""
    return tuple((column, show) for column, show in _VARYING if len({show(row) for row in rows}) > 1)


def common(rows: Sequence[Row]) -> tuple[str, ...]:
    """``name value`` of what all rows share, beside the columns that every table has."""
    alike = [(column, {show(row) for row in rows}) for column, show in _VARYING]
    return tuple(
        f"{column.title} {values.pop()}"
        for column, values in alike
        if len(values) == 1 and values != {UNKNOWN} and column.title != "machine"
    )


def throughput(model: ReportModel) -> Table:
    """One row per configuration, failed ones too."""
    notes = Notes()
    columns: list[Shown] = [
        *IDENTITY,
        *varying(model.rows),
        (Column("runs ok"), lambda row: f"{row.runs_ok} of {row.runs}"),
        (Column("samples/s [95 %]"), lambda row: interval(row.samples_per_second) if row.measured else "failed"),
    ]
    if any(row.predicted_samples_per_second is not None for row in model.rows):
        columns.append((Column("predicted"), lambda row: number(row.predicted_samples_per_second)))
    columns += [
        (Column("tokens/s"), lambda row: number(row.tokens_per_second.value if row.tokens_per_second else None)),
        (Column("tokens/s/device"), lambda row: number(_value(row))),
        (Column("MFU / HFU / MBU %"), lambda row: _utilisation(row, notes)),
        (Column("steady", False), lambda row: _steady(row, notes)),
    ]
    table = table_of(columns, model.rows, notes)
    few = [row.name for row in model.rows if 0 < len(row.measured) < RUNS_TO_PUBLISH]
    return replace(table, notes=(*table.notes, _too_few(few))) if few else table


def _too_few(names: Sequence[str]) -> str:
    shown = ", ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} rows"
    return f"Fewer than {RUNS_TO_PUBLISH} runs, so not to be published: {shown}."


def phases(model: ReportModel) -> Table:
    """Seconds of an iteration by phase, with their share of it."""
    rows = [row for row in model.rows if row.phases]
    known = [name for name in ALL_NAMES if any(phase.name == name for row in rows for phase in row.phases)]
    columns = [*IDENTITY, *((Column(name), _phase_cell(name)) for name in known)]
    columns.append((Column("iteration"), lambda row: number(row.iteration_seconds)))
    return table_of(columns, rows)


def memory(model: ReportModel) -> Table:
    """Peak against floor."""
    rows = [row for row in model.rows if row.memory]
    columns: list[Shown] = [
        *IDENTITY,
        (Column("peak GiB"), lambda row: gib(row.memory.peak_bytes if row.memory else None)),
        (Column("peak is", False), lambda row: row.memory.peak_is if row.memory else UNKNOWN),
    ]
    if any(row.memory and row.memory.peak_is == "reserved" for row in rows):
        columns += [
            (Column("allocated GiB"), lambda row: gib(row.memory.allocated_bytes if row.memory else None)),
            (Column("device GiB"), lambda row: gib(row.memory.device_bytes if row.memory else None)),
        ]
    columns += [
        (Column("floor GiB"), lambda row: gib(row.memory.floor_bytes if row.memory else None)),
        (Column("set by", False), lambda row: inline(row.memory.floor_phase or UNKNOWN) if row.memory else UNKNOWN),
        (Column("floor/peak %"), _floor_share),
    ]
    if any(row.memory and row.memory.allocation_retries for row in rows):
        columns.append(
            (Column("retries"), lambda row: number(row.memory.allocation_retries if row.memory else None, 1))
        )
    table = table_of(columns, rows)
    return replace(table, notes=(_BELOW_FLOOR,)) if any(map(_is_below_floor, rows)) else table


def _floor_share(row: Row) -> str:
    share = percent(row.memory.efficiency if row.memory else None)
    return f"{share} (!)" if _is_below_floor(row) else share


def _is_below_floor(row: Row) -> bool:
    return row.memory is not None and (row.memory.efficiency or 0.0) > 1


def energy(model: ReportModel) -> Table:
    """GPU board energy; what is not valid says why."""
    notes = Notes()
    rows = [row for row in model.rows if row.energy]

    def joules(row: Row) -> str:
        assert row.energy is not None, "only rows with energy are shown"
        figure = number(row.energy.joules_per_sample)
        reasons = "; ".join(row.energy.reasons) or "not all runs were sampled"
        return figure if row.energy.valid else f"{figure} {notes.mark('Not valid: ' + prose(reasons))}"

    return table_of([*IDENTITY, (Column("J/sample"), joules)], rows, notes)


def apart(rows: Sequence[Row]) -> Table:
    """Rows that nothing of equal work stands beside."""
    columns: list[Shown] = [
        *IDENTITY,
        *varying(rows),
        (Column("work", False), lambda row: row.work_hash[:8]),
        (Column("samples/s [95 %]"), lambda row: interval(row.samples_per_second)),
    ]
    return table_of(columns, rows)


def scaling(curves: Sequence[Curve]) -> Table:
    """Points of one kind of scaling; the phases have the eta of their own time."""
    points = [(curve, point) for curve in curves for point in curve.points]
    known = [name for name in TIMED_NAMES if any(name in dict(point.phase_eta) for _, point in points)]
    nodes = any(point.row.nodes > 1 for _, point in points)
    columns = (
        *(Column(title, False) for title in ("size", "backend", "strategy", "rows")),
        *(
            Column(title)
            for title in (*(["nodes"] if nodes else []), "N0", "N", "speed-up", "eta(N; N0) [95 %]", *known)
        ),
    )
    rows = tuple(_scaled(curve, point, known, nodes) for curve, point in points)
    notes = []
    if any(point.above_one for _, point in points):
        notes.append("(!) eta above 1: kept, and a reason to look at the base, which may be short of memory or cache.")
    return Table(columns, rows, tuple(notes))


def failures(rows: Sequence[FailureRow], model: ReportModel) -> Table:
    """Runs that did not end well; the next steps stand below the table, once per kind."""
    by_number = {row.number: row for row in model.rows}
    columns = tuple(
        Column(title, title in ("ranks", "runs"))
        for title in ("row", "size", "ranks", "backend", "runs", "kind", "phase", "evidence")
    )
    cells = []
    for failure in rows:
        row = by_number[failure.row]
        evidence = code(failure.evidence) if failure.evidence else UNKNOWN
        more = f" + {failure.evidence_lines - 1} more" if failure.evidence_lines > 1 else ""
        where = (
            row.name,
            inline(row.size),
            str(row.ranks),
            inline(row.backend),
            f"{len(failure.run_ids)} of {row.runs}",
        )
        cells.append((*where, failure.kind, inline(failure.phase) if failure.phase else UNKNOWN, evidence + more))
    steps = {failure.kind: failure.next_step for failure in rows}
    return Table(columns, tuple(cells), tuple(f"{kind}: {steps[kind]}" for kind in sorted(steps)))


def machine(found: Machine) -> Table:
    """What is known of one machine."""
    columns = (Column("fact", False), Column("value", False))
    rows = tuple((inline(fact.name), "; ".join(prose(value) for value in fact.values)) for fact in found.facts)
    return Table(columns, rows)


def table_of(columns: Sequence[Shown], rows: Sequence[Row], notes: Notes | None = None) -> Table:
    cells = tuple(tuple(show(row) for _, show in columns) for row in rows)
    return Table(tuple(column for column, _ in columns), cells, notes.lines() if notes else ())


def _value(row: Row) -> float | None:
    return row.tokens_per_second_per_device.value if row.tokens_per_second_per_device else None


def _utilisation(row: Row, notes: Notes) -> str:
    rates = (row.mfu, row.hfu, row.mbu)
    figures = UNKNOWN if rates == (None, None, None) else " / ".join(percent(rate) for rate in rates)
    told = []
    if row.unknown_utilisation:
        told.append(row.unknown_utilisation[:1].upper() + row.unknown_utilisation[1:])
    if any(rate is not None and rate > 1 for rate in rates):
        told.append(_ABOVE_PEAK)
    return " ".join([figures, *map(notes.mark, told)])


def _steady(row: Row, notes: Notes) -> str:
    """``steady``, or how many runs were what, with the reasons below."""
    verdicts = [verdict if len(row.verdicts) == 1 else f"{count} {verdict}" for verdict, count in row.verdicts]
    told = ", ".join(verdicts) or UNKNOWN
    return (
        f"{told} {notes.mark('Steady state: ' + prose('; '.join(row.unsteady_reasons)))}"
        if row.unsteady_reasons
        else told
    )


def _phase_cell(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        cost = next((phase for phase in row.phases if phase.name == name), None)
        return f"{number(cost.seconds)} ({percent(cost.share)} %)" if cost else UNKNOWN

    return cell


def _scaled(curve: Curve, point: Point, known: Sequence[str], nodes: bool) -> tuple[str, ...]:
    by_phase = dict(point.phase_eta)
    return (
        *(inline(curve.base.size), inline(curve.base.backend), curve.base.strategy),
        f"{curve.base.name}, {point.row.name}",
        *([str(point.row.nodes)] if nodes else []),
        *(str(curve.base.ranks), str(point.row.ranks), number(point.speedup.value)),
        interval(point.eta, bound_digits=1) + (" (!)" if point.above_one else ""),
        *(number(by_phase[name]) if name in by_phase else UNKNOWN for name in known),
    )
