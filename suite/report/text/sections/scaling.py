"""How much of each rank's rate is left on more ranks, as a whole and by phase."""

from collections.abc import Iterator, Sequence

from suite.report.facts.model import ReportModel
from suite.report.facts.scaling import Curve, Point
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, interval, number
from suite.report.text.section import Block, Heading, Picture, Section
from suite.spec.phases import TIMED_NAMES

_HEADINGS = {"weak": "Weak: equal work per rank", "strong": "Strong: equal work in all"}


def _blocks(model: ReportModel) -> Iterator[Block]:
    curves = model.scaling.curves
    if not curves:
        yield "Nothing was measured on two rank counts under one strategy, so there is no efficiency to report."
        return
    yield (
        "The last columns are the eta of each phase's own time. Do not compare rows of different N0 or strategy."
        f"{_shared_cpu(curves)}"
    )
    for kind, heading in _HEADINGS.items():
        members = [curve for curve in curves if curve.kind == kind]
        if members:
            yield Heading(heading)
            yield _table(members)
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


def _table(curves: Sequence[Curve]) -> Table:
    """Points of one kind of scaling; the phases have the eta of their own time."""
    points = [(curve, point) for curve in curves for point in curve.points]
    known = [name for name in TIMED_NAMES if any(name in dict(point.phase_eta) for _, point in points)]
    nodes = any(point.row.nodes > 1 for _, point in points)
    figures = (*(["nodes"] if nodes else []), "N0", "N", "speed-up", "eta(N; N0) [95 %]", *known)
    columns = (
        *(Column(title, False) for title in ("size", "backend", "strategy", "rows")),
        *(Column(title) for title in figures),
    )
    rows = tuple(_cells(curve, point, known, nodes) for curve, point in points)
    notes = []
    if any(point.above_one for _, point in points):
        notes.append("(!) eta above 1: look at the base, which may be short of memory or cache.")
    return Table(columns, rows, tuple(notes))


def _cells(curve: Curve, point: Point, known: Sequence[str], nodes: bool) -> tuple[str, ...]:
    by_phase = dict(point.phase_eta)
    return (
        *(inline(curve.base.size), inline(curve.base.backend), curve.base.strategy),
        f"{curve.base.name}, {point.row.name}",
        *([str(point.row.nodes)] if nodes else []),
        *(str(curve.base.ranks), str(point.row.ranks), number(point.speedup.value)),
        interval(point.eta, bound_digits=1) + (" (!)" if point.above_one else ""),
        *(number(by_phase[name].value) if name in by_phase else UNKNOWN for name in known),
    )


SECTION = Section("Scaling", _blocks, Picture("scaling", "Scaling efficiency by rank count"))
