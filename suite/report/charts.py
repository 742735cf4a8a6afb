"""Charts with a line for each row, each described once: what is marked on a row's line, and what that is called.

``plots/rows.py`` draws them as SVG beside the Markdown, ``page/script/lines.js`` on the page.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from suite.report.facts.costs import MemoryUse, PhaseMemory
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.numbers import GIB, interval, number, percent
from suite.spec.phases import ALL
from suite.stats.intervals import Interval

#: ``bar``: from ``low`` on, as long as ``value``; ``band``: from ``low`` to ``high``; ``tick``: at ``value``; ``dot``:
#: there too, with its interval; ``mean``: like it, beside a tick or a dot, where a pointer tells them apart: on a page.
MarkKind = Literal["bar", "band", "tick", "dot", "mean"]


@dataclass(frozen=True)
class Key:
    """What marks of one name are, for the legend. ``ink``: whose colour they have."""

    text: str
    kind: MarkKind
    ink: Literal["backend", "phase", "strong", "faint"] = "backend"


@dataclass(frozen=True)
class Mark:
    """``key``: its name among the chart's keys. ``text``: what tables write for it."""

    key: str
    value: float
    low: float | None = None
    high: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Line:
    """The marks of one row. ``text``: written right of them."""

    row: Row
    marks: tuple[Mark, ...]
    text: str = ""

    def mark(self, key: str) -> Mark | None:
        return next((mark for mark in self.marks if mark.key == key), None)


@dataclass(frozen=True)
class Chart:
    """``name``: what a choice between charts calls it. ``right``: what the text of a line is; empty: nothing is.

    ``limit``: a value that no row can pass, with its name. ``drawn``: the key without which a row has no line in SVG.
    """

    name: str
    title: str
    unit: str
    keys: dict[str, Key]
    lines: tuple[Line, ...]
    right: str = ""
    limit: tuple[float, str] | None = None
    drawn: str = ""


def _mark(key: str, estimate: Interval, text: str) -> Mark:
    return Mark(key, estimate.value, estimate.low, estimate.high, text)


def phases(model: ReportModel, unit: Literal["share", "seconds"]) -> Chart:
    """Those of asynchronous rows are parts of no whole, so they have no line."""
    rows = [row for row in model.rows if row.phases and not row.setting.asynchronous]
    is_share = unit == "share"
    return Chart(
        name=unit,
        title=f"{'Share' if is_share else 'Seconds'} of an iteration by phase",
        unit="share of an iteration" if is_share else "seconds",
        keys={phase.name: Key(phase.label, "bar", "phase") for phase in ALL},
        lines=tuple(Line(row, tuple(_pieces(row, is_share)), f"{number(row.iteration_seconds)} s") for row in rows),
        right="its seconds",
    )


def _pieces(row: Row, is_share: bool) -> Iterator[Mark]:
    start = 0.0
    for one in row.phases:
        length = (one.share or 0.0) if is_share else one.seconds
        text = f"{percent(length)} %" if is_share else f"{interval(one.interval, bound_digits=1)} s"
        yield Mark(one.name, length, start, start + length, text)
        start += length


def memory(model: ReportModel) -> Iterator[Chart]:
    """Of the whole iteration, then of each phase."""
    used = [(row, row.memory) for row in model.rows if row.memory]
    capacities = {machine.device_memory_bytes for machine in model.machines if machine.device_memory_bytes}
    capacity = capacities.pop() / GIB if len(capacities) == 1 else None
    limit = None if capacity is None else (capacity, f"device memory, {number(capacity)} GiB")
    yield _memory("the whole iteration", [_memory_line(*one) for one in used], limit, drawn="floor")
    for phase in ALL:
        of_phase = [(row, one) for row, use in used for one in use.by_phase if one.name == phase.name]
        if of_phase:
            yield _memory(f"phase {phase.label}", [_memory_line(*one) for one in of_phase])


def _memory(name: str, lines: list[Line], limit: tuple[float, str] | None = None, drawn: str = "") -> Chart:
    return Chart(
        name=name,
        title=f"Peak memory of {name} against its theoretical floor",
        unit="GiB per device",
        keys={
            "floor": Key("floor", "tick"),
            "peak": Key("peak", "dot"),
            "mean": Key("mean of the runs' peaks, 95 %", "mean"),
        },
        lines=tuple(lines),
        right="floor / peak",
        limit=limit,
        drawn=drawn,
    )


def _memory_line(row: Row, use: MemoryUse | PhaseMemory) -> Line:
    mean, floor, peak = use.run_peak_bytes.scaled(1 / GIB), use.floor_bytes, use.peak_bytes
    marks = [] if floor is None else [Mark("floor", floor / GIB, text=number(floor / GIB))]
    marks += [Mark("peak", peak / GIB, text=number(peak / GIB))]
    marks += [] if mean.low is None else [_mark("mean", mean, interval(mean, bound_digits=1))]
    return Line(row, tuple(marks), "" if floor is None else f"{percent(floor / peak)} %")


def rates(model: ReportModel) -> Chart:
    """Samples per second beside what was predicted; rows without a rate have no mark."""
    return Chart(
        name="throughput (samples/s)",
        title="Throughput in samples/s, more is better",
        unit="samples/s",
        keys={
            "band": Key("predicted, 80 % band", "band", "faint"),
            "predicted": Key("predicted", "tick", "strong"),
            "measured": Key("measured, 95 %", "dot"),
        },
        lines=tuple(map(_rate_line, model.rows)),
        right="measured / predicted",
        drawn="predicted",
    )


def _rate_line(row: Row) -> Line:
    measured = row.samples_per_second
    if measured is None:
        return Line(row, (), row.without_rate)
    own = _mark("measured", measured, interval(measured))
    if row.expected is None:
        return Line(row, (own,))
    rate = row.expected.rate
    band = [] if rate.low is None else [Mark("band", rate.value, rate.low, rate.high)]
    foretold = Mark("predicted", rate.value, text=interval(rate))
    return Line(row, (*band, foretold, own), f"{percent(measured.value / rate.value)} %")


#: A figure on the page, with what is written for it.
Figure = tuple[Interval, str]


@dataclass(frozen=True)
class _Metric:
    """What can be chosen to be drawn of every row. ``better``: which way a good figure lies; empty: neither."""

    label: str
    unit: str
    better: str
    read: Callable[[Row], Figure | None]


def _bounded(estimate: Interval | None, digits: int = 2) -> Figure | None:
    """With the text of a column that shows bounds."""
    return None if estimate is None else (estimate, interval(estimate, bound_digits=digits))


def _alone(value: float | None) -> Figure | None:
    return None if value is None else (Interval(value, None, None), number(value))


def _percent(ratio: float | None) -> Figure | None:
    return None if ratio is None else (Interval(100 * ratio, None, None), percent(ratio))


def _phase(name: str) -> Callable[[Row], Figure | None]:
    return lambda row: _bounded(cost.interval, 1) if (cost := row.phase(name)) else None


def _joules(row: Row) -> Figure | None:
    return _alone(row.energy.joules_per_sample) if row.energy and row.energy.valid else None


_METRICS: tuple[_Metric, ...] = (
    _Metric("throughput", "tokens/s", "more", lambda row: _bounded(row.tokens_per_second)),
    _Metric("throughput", "tokens/s/device", "more", lambda row: _bounded(row.tokens_per_second_per_device)),
    _Metric("iteration", "s", "less", lambda row: _alone(row.iteration_seconds)),
    *(_Metric(f"phase {one.label}", "s", "less", _phase(one.name)) for one in ALL),
    _Metric("idle", "% of an iteration", "less", lambda row: _percent(row.idle.share if row.idle else None)),
    _Metric("memory, floor over peak", "%", "more", lambda it: _percent(it.memory.efficiency if it.memory else None)),
    _Metric("MFU", "%", "more", lambda row: _percent(row.mfu)),
    _Metric("HFU", "%", "more", lambda row: _percent(row.hfu)),
    _Metric("MBU", "%", "more", lambda row: _percent(row.mbu)),
    _Metric("energy", "J/sample", "less", _joules),
)


def figures(model: ReportModel) -> Iterator[Chart]:
    """The rate, and every other figure that rows have."""
    yield rates(model)
    for one in _METRICS:
        known = [(row, figure) for row in model.rows if (figure := one.read(row)) is not None]
        better = f", {one.better} is better" if one.better else ""
        if known:
            yield Chart(
                name=f"{one.label} ({one.unit})",
                title=f"{one.label[:1].upper()}{one.label[1:]} in {one.unit}{better}",
                unit=one.unit,
                keys={"measured": Key("measured, 95 %", "dot")},
                lines=tuple(Line(row, (_mark("measured", *figure),)) for row, figure in known),
            )
