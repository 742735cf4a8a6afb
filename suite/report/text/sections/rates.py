"""Rates of every configuration, failed ones too, beside the planner's, and on more ranks."""

from collections.abc import Callable, Iterator
from itertools import chain
from statistics import median

from suite.launch.outcome import NEXT_STEPS
from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.scaling import Curve, Point
from suite.report.formatting.escape import code, inline, prose
from suite.report.formatting.grid import Column, Notes, Table
from suite.report.formatting.numbers import UNKNOWN, few, interval, number, percent
from suite.report.text.section import (
    IDENTITY,
    LABEL,
    Block,
    Shown,
    common,
    rate,
    shown,
    table_of,
    varying,
)
from suite.spec.phases import ALL_NAMES, TIMED_NAMES

_VOID = "Iterations that do not count, because optimizer steps were skipped in them (overflow at the loss scale)"
_ABOVE_PEAK = "Above 100 %, which no device can reach: doubt time, the device's name or, in older runs in fp32, TF32"
_UNKNOWN_RATES = "It needs counted FLOPs and a device whose peaks at this precision the catalogue has"
_OfCurve = tuple[Curve, Point]
_SHARED_CPU = (
    " On a CPU the ranks of a node share its cores and memory bandwidth: eta describes that machine and the code's "
    "overhead, no network of devices."
)


def throughput(model: ReportModel) -> Iterator[Block]:
    yield f"All rows: {common(model.rows)}."
    rows, notes = model.rows, Notes()
    causal = any(row.utilisation["hfu_causal"] is not None for row in rows)
    columns: list[Shown] = [
        *IDENTITY,
        *varying(rows),
        (Column("runs ok"), lambda row: row.ok_runs),
        (Column("samples/s [95 %]"), rate),
        (Column("tokens/s"), shown("tokens_per_second.value")),
        (Column("tokens/s/device"), shown("tokens_per_second_per_device.value")),
    ]
    if any(rate is not None for row in rows for rate in row.utilisation.values()):
        title = f"MFU / {'HFU / HFU causal' if causal else 'HFU'} / MBU %"
        columns.append((Column(title), lambda row: _utilisation(row, causal, notes)))
    columns.append((Column("steady", False), lambda row: _steady(row, notes)))
    rare = [row.name for row in rows if 0 < len(row.measured) < RUNS_TO_PUBLISH]
    void = [f"{row.name} ({row.void_iterations})" for row in rows if row.void_iterations]
    below = [f"Fewer than {RUNS_TO_PUBLISH} runs, too few to publish: {', '.join(few(rare))}."] if rare else []
    below += [f"{_VOID}: {', '.join(few(void))}."] if void else []
    yield table_of(columns, rows, chain(notes, below))


def _utilisation(row: Row, causal: bool, notes: Notes) -> str:
    rates = [rate for name, rate in row.utilisation.items() if causal or name != "hfu_causal"]
    figures = UNKNOWN if set(rates) == {None} else " / ".join(percent(rate) for rate in rates)
    unknown = _UNKNOWN_RATES if row.measured and None in rates else ""
    reasons = (unknown, _ABOVE_PEAK * any((rate or 0) > 1 for rate in rates))
    return " ".join([figures, *map(notes.mark, filter(None, reasons))])


def _steady(row: Row, notes: Notes) -> str:
    """``steady``, or how many runs were what, with the reasons below."""
    verdicts = [verdict if len(row.verdicts) == 1 else f"{count} {verdict}" for verdict, count in row.verdicts]
    text = ", ".join(verdicts) or UNKNOWN
    return " ".join([text, *(notes.mark("Steady: " + prose(reason)) for reason in row.unsteady_reasons)])


def predicted(model: ReportModel) -> Iterator[Block]:
    rows = [(row, row.expected, row.samples_per_second) for row in model.rows]
    found = [(row, foretold, rate.value) for row, foretold, rate in rows if foretold is not None and rate]
    if not found:
        return
    names = [name for name in ALL_NAMES if any(name in dict(foretold.phases) for _, foretold, _ in found)]
    cells = []
    for row, foretold, measured in found:
        predicted = dict(foretold.phases)
        costs = {cost.name: cost.seconds / predicted[cost.name] for cost in row.phases if cost.name in predicted}
        figures = (number(measured), interval(foretold.rate), number(measured / foretold.rate.value))
        cells.append((LABEL[1](row), *figures, *(number(costs.get(name)) for name in names)))
    titles = ("samples/s", "predicted [80 %]", "measured / predicted", *names)
    yield Table((LABEL[0], *map(Column, titles)), tuple(cells))
    off = [abs(measured / foretold.rate.value - 1) for _, foretold, measured in found]
    yield (
        f"Off by {percent(median(off))} % (median) and at most {percent(max(off))} %. The last columns are seconds of "
        "a phase over those predicted."
    )


def scaling(model: ReportModel) -> Iterator[Block]:
    points = [(curve, point) for curve in model.scaling for point in curve.points]
    if not points:
        yield "Nothing was measured on two rank counts under one strategy, so there is no efficiency to report."
        return
    has_shared_cpu = any(
        one.row.setting.device == "cpu" and one.row.manifest.layout.nodes < one.row.ranks for _, one in points
    )
    yield (
        "Weak: equal work per rank; strong: equal work in all. The last columns are the eta of each phase's own time. "
        f"Do not compare rows of different N0 or strategy.{_SHARED_CPU * has_shared_cpu}"
    )
    known = [name for name in TIMED_NAMES if any(name in dict(point.phase_eta) for _, point in points)]
    columns: list[tuple[Column, Callable[[_OfCurve], str]]] = [
        (Column("scaling", False), lambda of: of[0].kind),
        (Column("size", False), lambda of: inline(of[0].base.size)),
        (Column("backend", False), lambda of: inline(of[0].base.backend)),
        (Column("strategy", False), lambda of: of[0].base.manifest.layout.strategy()),
        (Column("rows", False), lambda of: f"{of[0].base.name}, {of[1].row.name}"),
        (Column("N0"), lambda of: str(of[0].base.ranks)),
        (Column("N"), lambda of: str(of[1].row.ranks)),
        (Column("speed-up"), lambda of: number(of[1].speedup.value)),
        (Column("eta(N; N0) [95 %]"), lambda of: interval(of[1].eta, bound_digits=1) + " (!)" * of[1].above_one),
        *((Column(name), _eta_in(name)) for name in known),
    ]
    above = any(point.above_one for _, point in points)
    notes = ("(!) eta above 1: look at the base, which may be short of memory or cache.",) if above else ()
    yield table_of(columns, points, notes)


def _eta_in(phase: str) -> Callable[[_OfCurve], str]:
    return lambda of: number(eta.value if (eta := dict(of[1].phase_eta).get(phase)) else None)


def failures(model: ReportModel) -> Iterator[Block]:
    titles = ("row", "size", "ranks", "backend", "runs", "kind", "phase", "evidence")
    cells = []
    for one in model.failures:
        row, failure = one.row, one.failure
        more = f" + {len(failure.evidence) - 1} more" if len(failure.evidence) > 1 else ""
        evidence = f"{code(failure.evidence[0])}{more}" if failure.evidence else UNKNOWN
        phase = inline(failure.phase) if failure.phase else UNKNOWN
        told = (f"{len(one.entries)} of {row.runs}", failure.kind, phase, evidence)
        cells.append((row.name, inline(row.size), str(row.ranks), inline(row.backend), *told))
    kinds = sorted({one.failure.kind for one in model.failures})
    if cells:
        columns = tuple(Column(title, title in ("ranks", "runs")) for title in titles)
        yield Table(columns, tuple(cells), tuple(f"{kind}: {NEXT_STEPS[kind]}" for kind in kinds))
