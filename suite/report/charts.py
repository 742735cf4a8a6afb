"""Charts, each described once; ``plots/`` draws them as SVG beside the Markdown, ``page/script/`` on the page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from suite.report.facts.costs import MemoryUse, PhaseMemory
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.scaling import Curve
from suite.report.formatting.numbers import GIB, interval, number, percent
from suite.spec.phases import ALL
from suite.stats.intervals import Interval

#: ``bar``: from ``low`` on, as long as ``value``; ``band``: from ``low`` to ``high``; ``tick``: at ``value``; ``dot``:
#: there too, with its interval; ``mean``: like it, beside a tick or a dot, where a pointer tells them apart: on a page.
MarkKind = Literal["bar", "band", "tick", "dot", "mean"]


class Key(NamedTuple):
    """``ink``: whose colour marks of this name have."""

    text: str
    kind: MarkKind
    ink: Literal["backend", "phase", "strong", "faint"] = "backend"


class Mark(NamedTuple):
    """``key``: its name among the chart's keys. ``text``: what tables write for it."""

    key: str
    value: float
    low: float | None = None
    high: float | None = None
    text: str = ""

    @property
    def interval(self) -> Interval:
        return Interval(self.value, self.low, self.high)


class Line(NamedTuple):
    """The marks of one row. ``text``: written right of them."""

    row: Row
    marks: tuple[Mark, ...]
    text: str = ""


@dataclass(frozen=True)
class Chart:
    """``name``: what a choice between charts calls it. ``right``: what the text of a line with marks is. ``limit``:
    what no row can pass, with its name. ``drawn``: the key without which a row has no line in SVG."""

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
        title=f"{unit.capitalize()} of an iteration by phase",
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
    used = [(row, row.memory) for row in model.rows if row.memory]
    keys = {
        "floor": Key("floor", "tick"),
        "peak": Key("peak", "dot"),
        "mean": Key("mean of the runs' peaks, 95 %", "mean"),
    }
    capacities = {machine.device_memory_bytes / GIB for machine in model.machines if machine.device_memory_bytes}
    limits = [(capacity, f"device memory, {number(capacity)} GiB") for capacity in capacities]
    limit = limits[0] if len(limits) == 1 else None
    title, unit, right = "Peak memory of {} against its theoretical floor", "GiB per device", "floor / peak"
    name, lines = "the whole iteration", tuple(_memory_line(*one) for one in used)
    yield Chart(name, title.format(name), unit, keys, lines, right, limit, drawn="floor")
    for phase in ALL:
        name = f"phase {phase.label}"
        lines = tuple(_memory_line(row, one) for row, use in used for one in use.by_phase if one.name == phase.name)
        if lines:
            yield Chart(name, title.format(name), unit, keys, lines, right)


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


def _phase(name: str) -> Callable[[Row], Interval | None]:
    return lambda row: cost.interval if (cost := row.phase(name)) else None


#: What else can be drawn of every row: name, unit, which way a good figure lies, and how it is read; ratios in percent.
_METRICS: tuple[tuple[str, str, str, Callable[[Row], Interval | float | None]], ...] = (
    ("throughput", "tokens/s", "more", lambda row: row.tokens_per_second),
    ("throughput", "tokens/s/device", "more", lambda row: row.tokens_per_second_per_device),
    ("iteration", "s", "less", lambda row: row.iteration_seconds),
    *((f"phase {one.label}", "s", "less", _phase(one.name)) for one in ALL),
    ("idle", "% of an iteration", "less", lambda row: row.idle.share if row.idle else None),
    ("memory, floor over peak", "%", "more", lambda row: row.memory.efficiency if row.memory else None),
    ("MFU", "%", "more", lambda row: row.utilisation["mfu"]),
    ("HFU", "%", "more", lambda row: row.utilisation["hfu"]),
    ("MBU", "%", "more", lambda row: row.utilisation["mbu"]),
    ("energy", "J/sample", "less", lambda it: it.energy.joules_per_sample if it.energy and it.energy.valid else None),
)


def _measured(value: Interval | float, unit: str) -> Mark:
    if isinstance(value, Interval):
        return _mark("measured", value, interval(value, bound_digits=1 if unit == "s" else 2))
    if unit.startswith("%"):
        return Mark("measured", 100 * value, text=percent(value))
    return Mark("measured", value, text=number(value))


def figures(model: ReportModel) -> Iterator[Chart]:
    yield rates(model)
    for name, unit, better, read in _METRICS:
        found = [(row, value) for row in model.rows if (value := read(row)) is not None]
        lines = tuple(Line(row, (_measured(value, unit),)) for row, value in found)
        if lines:
            yield Chart(
                name=f"{name} ({unit})",
                title=f"{name[:1].upper()}{name[1:]} in {unit}, {better} is better",
                unit=unit,
                keys={"measured": Key("measured, 95 %", "dot")},
                lines=lines,
            )


def points(curve: Curve) -> Iterator[Line]:
    """The base first: of each ``eta`` and ``rate``, and what ideal scaling and the prediction say of both."""
    base = curve.base
    yield Line(base, (Mark("eta", 1.0, text="1"), *_beside_eta(base, base)))
    for one in curve.points:
        eta = _mark("eta", one.eta, interval(one.eta, bound_digits=1))
        yield Line(one.row, (eta, *_beside_eta(one.row, base)), "(!) above 1" if one.above_one else "")


def _beside_eta(row: Row, base: Row) -> Iterator[Mark]:
    rate, of_base, more = row.samples_per_second, base.samples_per_second, row.ranks / base.ranks
    assert rate is not None and of_base is not None, "rows of a curve are measured"
    yield _mark("rate", rate, interval(rate))
    yield Mark("ideal eta", 1.0, text="1")
    yield Mark("ideal rate", of_base.value * more, text=number(of_base.value * more, 4))
    if row.expected is not None and base.expected is not None:
        foretold = row.expected.rate
        eta = foretold.value / base.expected.rate.value / more
        yield Mark("predicted eta", eta, text=number(eta))
        yield Mark("predicted rate", foretold.value, text=interval(foretold))
