"""Rates of every configuration, failed ones too, as DeepSpeed-Chat counts them, beside the planner's, and on more
ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from suite.report.facts.costs import Expected
from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.scaling import Curve, Point
from suite.report.formatting.escape import code, inline, prose
from suite.report.formatting.grid import Column, Notes, Table
from suite.report.formatting.numbers import UNKNOWN, counted, interval, number, percent
from suite.report.text.columns import IDENTITY, LABEL, Shown, common, rate, shown, table_of, varying
from suite.report.text.section import Block, Heading, Picture, Section
from suite.spec.phases import ALL_NAMES, TIMED_NAMES
from suite.stats.intervals import Interval

_MOST_NAMED = 12
#: The phases that DeepSpeed-Chat adds up.
_KEPT = ("generate", "train")
_VOID = "Iterations that do not count, because optimizer steps were skipped in them (overflow at the loss scale)"
_SHARED = "The bounds draw on what all rows of a machine vary by: fewer rows beside them give other bounds."
_ABOVE_PEAK = "Above 100 %, which no device can reach: doubt time, the device's name or, in older runs in fp32, TF32"
_SCALINGS = {"weak": "Weak: equal work per rank", "strong": "Strong: equal work in all"}


def _throughput(model: ReportModel) -> Iterator[Block]:
    shared = common(model.rows)
    yield f"All rows: {', '.join(shared)}." if shared else "The rows share no setting."
    rows, notes = model.rows, Notes()
    causal = any(row.hfu_causal is not None for row in rows)
    columns: list[Shown] = [
        *IDENTITY,
        *varying(rows),
        (Column("runs ok"), lambda row: row.ok_runs),
        (Column("samples/s [95 %]"), rate),
        (Column("tokens/s"), shown(lambda row: row.tokens_per_second, lambda one: number(one.value))),
        (Column("tokens/s/device"), shown(lambda row: row.tokens_per_second_per_device, lambda it: number(it.value))),
    ]
    if any(rate is not None for row in rows for rate in (row.mfu, row.hfu, row.mbu)):
        title = f"MFU / {'HFU / HFU causal' if causal else 'HFU'} / MBU %"
        columns.append((Column(title), lambda row: _utilisation(row, causal, notes)))
    columns.append((Column("steady", False), lambda row: _steady(row, notes)))
    table = table_of(columns, rows, notes)
    few = [row.name for row in rows if 0 < len(row.measured) < RUNS_TO_PUBLISH]
    void = [f"{row.name} ({row.void_iterations})" for row in rows if row.void_iterations]
    below = [f"Fewer than {RUNS_TO_PUBLISH} runs, too few to publish: {_named(few)}."] if few else []
    below += [f"{_VOID}: {_named(void)}."] if void else []
    below += [_SHARED] if any(row.prior for row in rows) else []
    yield replace(table, notes=(*table.notes, *below))


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} rows"


def _utilisation(row: Row, causal: bool, notes: Notes) -> str:
    rates = (row.mfu, row.hfu, *([row.hfu_causal] if causal else []), row.mbu)
    figures = UNKNOWN if set(rates) == {None} else " / ".join(percent(rate) for rate in rates)
    reasons = []
    if row.unknown_utilisation:
        reasons.append(row.unknown_utilisation[:1].upper() + row.unknown_utilisation[1:])
    if any(rate is not None and rate > 1 for rate in rates):
        reasons.append(_ABOVE_PEAK)
    return " ".join([figures, *map(notes.mark, reasons)])


def _steady(row: Row, notes: Notes) -> str:
    """``steady``, or how many runs were what, with the reasons below."""
    verdicts = [verdict if len(row.verdicts) == 1 else f"{count} {verdict}" for verdict, count in row.verdicts]
    text = ", ".join(verdicts) or UNKNOWN
    return " ".join([text, *(notes.mark("Steady: " + prose(reason)) for reason in row.unsteady_reasons)])


def _alone(model: ReportModel) -> Iterator[Block]:
    """Rows that no other row can be compared with, where the report compares others."""
    works = {row.work_hash for row in model.rows if row.measured}
    if not model.alone or not (model.ranking.groups or len(works) > 1):
        return
    columns: list[Shown] = [
        *IDENTITY,
        *varying(model.alone),
        (Column("work", False), lambda row: row.work_hash[:8]),
        (Column("samples/s [95 %]"), rate),
    ]
    yield "Not compared, because no other row did equal work on as many ranks under equal conditions:"
    yield table_of(columns, model.alone)


def _without_scoring(model: ReportModel) -> Iterator[Block]:
    """DeepSpeed-Chat's figures beside those of the whole iteration."""
    rows = [row for row in model.rows if row.separate_critic and row.phases and not row.setting.asynchronous]
    columns: tuple[Shown, ...] = (
        (Column("samples/s [95 %]"), rate),
        (Column("samples/s of generate + train"), _kept_rate),
        (Column("left out %"), _left_out),
    )
    if rows:
        yield "DeepSpeed-Chat's own figures add up generation and training and leave the scoring passes out. Both ways:"
        yield table_of([LABEL, *columns], rows)


def _kept_seconds(row: Row) -> float | None:
    found = [phase.seconds for phase in row.phases if phase.name in _KEPT]
    return sum(found) if len(found) == len(_KEPT) else None


def _kept_rate(row: Row) -> str:
    seconds = _kept_seconds(row)
    return number(row.samples_per_iteration / seconds if seconds and row.samples_per_iteration else None)


def _left_out(row: Row) -> str:
    seconds = _kept_seconds(row)
    return percent(1.0 - seconds / row.iteration_seconds if seconds and row.iteration_seconds else None)


def _predicted(model: ReportModel) -> Iterator[Block]:
    """What the planner expected beside what was measured."""
    rows = [(row, row.expected, row.samples_per_second) for row in model.rows]
    found = [(row, foretold, rate.value) for row, foretold, rate in rows if foretold is not None and rate]
    if not found:
        return
    names = [name for name in ALL_NAMES if any(name in dict(foretold.phases) for _, foretold, _ in found)]
    titles = ("samples/s", "predicted [80 %]", "measured / predicted", *names)
    cells = tuple(
        (
            *(LABEL[1](row), number(rate), interval(foretold.rate), number(rate / foretold.rate.value)),
            *(_phase(row, foretold, name) for name in names),
        )
        for row, foretold, rate in found
    )
    yield Table((LABEL[0], *map(Column, titles)), cells)
    errors = _errors([(rate, foretold.rate) for _, foretold, rate in found])
    yield f"{errors} The last columns are seconds of a phase over those predicted."


def _phase(row: Row, expected: Expected, name: str) -> str:
    cost, predicted = row.phase(name), dict(expected.phases).get(name)
    return UNKNOWN if cost is None or predicted is None else number(cost.seconds / predicted)


def _errors(rates: Sequence[tuple[float, Interval]]) -> str:
    """One sentence: how far measured rates are off those predicted, and how many lie in their bands."""
    off = [abs(rate / foretold.value - 1) for rate, foretold in rates]
    text = f"Off by {percent(median(off))} % (median) and at most {percent(max(off))} %"
    banded = [one.low <= rate <= one.high for rate, one in rates if one.low is not None and one.high is not None]
    return f"{text}; in their band: {sum(banded)} of {counted(len(banded), 'row')}." if banded else f"{text}."


def _scaling(model: ReportModel) -> Iterator[Block]:
    """How much of each rank's rate is left on more ranks, as a whole and by phase."""
    curves = model.scaling.curves
    if not curves:
        yield "Nothing was measured on two rank counts under one strategy, so there is no efficiency to report."
        return
    yield (
        "The last columns are the eta of each phase's own time. Do not compare rows of different N0 or strategy."
        f"{_shared_cpu(curves)}"
    )
    for kind, heading in _SCALINGS.items():
        points = [(curve, point) for curve in curves if curve.kind == kind for point in curve.points]
        if points:
            yield Heading(heading)
            yield _eta_table(points)
    if model.scaling.alone:
        yield f"Without another rank count: {', '.join(row.name for row in model.scaling.alone)}."


def _shared_cpu(curves: Sequence[Curve]) -> str:
    """A warning wherever the ranks of a curve are processes of one host's processor."""
    rows = [point.row for curve in curves for point in curve.points]
    if not any(row.setting.device == "cpu" and row.nodes < row.ranks for row in rows):
        return ""
    return (
        " On a CPU the ranks of a node share its cores and memory bandwidth: eta describes that machine and the code's "
        "overhead, no network of devices."
    )


def _eta_table(points: Sequence[tuple[Curve, Point]]) -> Table:
    known = [name for name in TIMED_NAMES if any(name in dict(point.phase_eta) for _, point in points)]
    nodes = any(point.row.nodes > 1 for _, point in points)
    figures = (*(["nodes"] if nodes else []), "N0", "N", "speed-up", "eta(N; N0) [95 %]", *known)
    columns = (
        *(Column(title, False) for title in ("size", "backend", "strategy", "rows")),
        *(Column(title) for title in figures),
    )
    rows = tuple(_eta_cells(curve, point, known, nodes) for curve, point in points)
    above = any(point.above_one for _, point in points)
    notes = ("(!) eta above 1: look at the base, which may be short of memory or cache.",) if above else ()
    return Table(columns, rows, notes)


def _eta_cells(curve: Curve, point: Point, known: Sequence[str], nodes: bool) -> tuple[str, ...]:
    by_phase = dict(point.phase_eta)
    return (
        *(inline(curve.base.size), inline(curve.base.backend), curve.base.strategy),
        f"{curve.base.name}, {point.row.name}",
        *([str(point.row.nodes)] if nodes else []),
        *(str(curve.base.ranks), str(point.row.ranks), number(point.speedup.value)),
        interval(point.eta, bound_digits=1) + (" (!)" if point.above_one else ""),
        *(number(by_phase[name].value) if name in by_phase else UNKNOWN for name in known),
    )


def _failures(model: ReportModel) -> Iterator[Block]:
    """Runs that did not succeed, with their evidence and what to do next."""
    titles = ("row", "size", "ranks", "backend", "runs", "kind", "phase", "evidence")
    cells = []
    for one in model.failures:
        row = model.rows[one.row - 1]
        evidence = code(one.evidence) if one.evidence else UNKNOWN
        more = f" + {one.evidence_lines - 1} more" if one.evidence_lines > 1 else ""
        cells.append(
            (
                *(row.name, inline(row.size), str(row.ranks), inline(row.backend)),
                *(f"{len(one.run_ids)} of {row.runs}", one.kind, inline(one.phase) if one.phase else UNKNOWN),
                evidence + more,
            )
        )
    steps = {failure.kind: failure.next_step for failure in model.failures}
    if cells:
        columns = tuple(Column(title, title in ("ranks", "runs")) for title in titles)
        yield Table(columns, tuple(cells), tuple(f"{kind}: {steps[kind]}" for kind in sorted(steps)))


THROUGHPUT = Section(
    "Throughput", _throughput, Picture("throughput", "Samples per second by model size, one panel per rank count")
)
ALONE = Section(None, _alone)
WITHOUT_SCORING = Section(None, _without_scoring)
PREDICTED = Section(
    "Predicted and measured",
    _predicted,
    Picture("predicted", "Predicted samples per second with their bands, and measured"),
    is_beside=True,
)
SCALING = Section("Scaling", _scaling, Picture("scaling", "Scaling efficiency by rank count"))
FAILURES = Section("Failures", _failures)
