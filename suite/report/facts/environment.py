"""What was around a measurement: device, links, versions, launcher, state; and how two sides differ in it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Literal, NamedTuple

from suite.bundle.facts import inner, listed_objects, positive
from suite.bundle.record import Record
from suite.report.facts.variants import launch_setting_of, short_image
from suite.report.formatting.numbers import GIB, number
from suite.spec.base import Frozen

FactKind = Literal["machine", "version", "launch", "setting", "state", "host"]
#: Measured figures of both sides that are within this factor of each other say nothing.
_ALIKE = 1.25
#: How a fact is read off a record; empty text where it is not told.
Reader = Callable[[Record], str]
#: Name, kind, and distinct values before and after.
FactOfBoth = tuple[str, FactKind, tuple[str, ...], tuple[str, ...]]


class Figure(NamedTuple):
    """A measured figure, which no two runs have alike. ``least``: what is below it counts as this much."""

    name: str
    unit: str
    scale: float
    read: Callable[[Record], float | None]
    least: float = 0.0


def _text(value: Any) -> str:
    """A scalar or a list of scalars as text; empty for null and for anything else."""
    if isinstance(value, list) and all(isinstance(one, (str, int)) for one in value):
        return ".".join(str(one) for one in value)
    return str(value) if isinstance(value, (str, int, float)) else ""


def worker(*names: str) -> Reader:
    """Of a fact that rank 0 told of where it ran."""
    return lambda record: _text(inner(record.environment.worker, *names))


def driver(*names: str) -> Reader:
    """Of a fact of environment.json."""
    return lambda record: _text(inner(record.environment.driver, *names))


def _figure(*names: str) -> Callable[[Record], float | None]:
    def read(record: Record) -> float | None:
        value = inner(record.environment.worker, *names)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    return read


def _load(record: Record) -> float | None:
    """Per processor that the rank may use."""
    load, cpus = _figure("idle", "load")(record), positive(inner(record.environment.worker, "idle", "cpus"))
    return None if load is None or cpus is None else load / cpus


def in_gib(*names: str, show: Callable[[float], str] = "{:.1f}".format) -> Reader:
    """To a digit behind the point: kernels of one machine do not always keep the same few pages."""
    read = _figure(*names)
    return lambda record: "" if (size := read(record)) is None else f"{show(size / GIB)} GiB"


def commit_of(record: Record) -> str:
    """``3340c2f3a1b2 with changes``: of the suite that drove the run; empty where it was no checkout."""
    commit, _, changed = driver("git_commit")(record).partition("+")
    return f"{commit[:12]}{' with changes' if changed else ''}" if commit else ""


def _told(record: Record, part: str) -> Iterable[tuple[str, Any]]:
    found = inner(record.environment.worker, part)
    return found.items() if isinstance(found, Mapping) else ()


def _identity(version: str, code: Any) -> str:
    """``0.19.8 62b72323 (commit 3340c2f3a1b2 with changes, editable)``: of a package."""
    commit = _text(inner(code, "commit"))[:12]
    words = [f"commit {commit}{' with changes' if inner(code, 'changed') is True else ''}"] if commit else []
    words += ["editable"] if inner(code, "editable") is True else []
    more = f" ({', '.join(words)})" if words else ""
    return f"{version} {_text(inner(code, 'digest'))[:8]}{more}"


def with_unit(unit: str, *names: str) -> Reader:
    return lambda record: f"{text} {unit}" if (text := worker(*names)(record)) else ""


def link_kinds(record: Record) -> tuple[str, ...]:
    """Links of a device and adapters that are up, each kind once: equal for any number of ranks on one machine."""
    if inner(record.environment.worker, "topology") is None:
        return ()
    kinds = (map(_nvlinks, gpus(record)), map(_adapter, active_adapters(record)))
    return tuple("; ".join(sorted(set(filter(None, found)))) for found in kinds)


def gpus(record: Record) -> list[dict[str, Any]]:
    return listed_objects(inner(record.environment.worker, "topology", "gpus"))


def active_adapters(record: Record) -> list[dict[str, Any]]:
    adapters = listed_objects(inner(record.environment.worker, "topology", "adapters"))
    return [one for one in adapters if one.get("state") == "ACTIVE"]


def _nvlinks(gpu: dict[str, Any]) -> str:
    links, active = (inner(gpu, "nvlinks", name) for name in ("links", "active"))
    of_all = "" if active == links else f" of {links}"
    return f"{active}{of_all} NVLinks" if positive(links) and type(active) is int else ""


def _adapter(adapter: dict[str, Any]) -> str:
    rate, layer = positive(adapter.get("bits_per_second")), adapter.get("link_layer")
    known = layer if isinstance(layer, str) else ""
    return f"{number(rate / 1e9)} Gb/s {known}".strip() if rate else known


def _counted(texts: Iterable[str]) -> str:
    counts = Counter(text for text in texts if text)
    return "; ".join(f"{count} x {text}" for text, count in counts.most_common(3))


_READERS: tuple[tuple[str, FactKind, Reader], ...] = (
    ("device", "machine", lambda it: "CPU" if it.run.device == "cpu" else worker("device", "name")(it)),
    ("devices of the host", "machine", worker("device", "count")),
    ("device memory", "machine", in_gib("device", "memory_bytes")),
    ("CPU", "machine", worker("cpu", "model")),
    ("cores", "machine", worker("cpu", "cores")),
    ("hardware threads", "machine", worker("cpu", "threads")),
    ("host memory", "machine", in_gib("memory_bytes")),
    ("NVLinks", "machine", lambda record: "".join(link_kinds(record)[:1])),
    ("network adapters", "machine", lambda record: _counted(map(_adapter, active_adapters(record)))),
    ("top clock", "machine", with_unit("MHz", "idle", "sm_clock_mhz_max")),
    ("power limit", "machine", with_unit("W", "idle", "power_limit_watts")),
    ("driver", "version", worker("driver")),
    ("CUDA", "version", worker("cuda")),
    ("NCCL", "version", worker("nccl")),
    ("kernel", "version", worker("kernel")),
    ("Python", "version", worker("python")),
    ("suite", "version", driver("suite_version")),
    ("suite's commit", "version", commit_of),
    ("image", "version", lambda record: launch_setting_of(record).image or "none"),
    ("launcher", "launch", lambda record: record.run.launcher or ""),
    ("runs at once", "launch", lambda record: str(launch_setting_of(record).at_once or "")),
    ("container runtime", "launch", driver("engine", "name")),
    ("container runtime's version", "version", driver("engine", "version")),
    ("torch threads", "setting", worker("threads", "torch")),
    ("usable CPUs", "machine", worker("threads", "cpus")),
    ("CPUs of a rank", "launch", worker("affinity", "cpus")),
    ("allocator", "setting", worker("allocator", "backend")),
    ("TF32", "setting", worker("allow_tf32")),
    ("held down by", "state", worker("idle", "throttle_reasons")),
    ("host", "host", worker("host")),
)
#: What simple kernels reached on the device before the run.
PRODUCT = Figure("measured matrix product", "TFLOP/s", 1e12, _figure("ceilings", "matmul_flops"))
COPY = Figure("measured copy", "GB/s", 1e9, _figure("ceilings", "copy_bytes_per_second"))
_FIGURES: tuple[Figure, ...] = (
    # less than one tells nothing: the run's own start and the run before it are in it
    Figure("load per CPU at the start", "", 1, _load, 1.0),
    Figure("clock before the run", "MHz", 1, _figure("idle", "sm_clock_mhz")),
    PRODUCT,
    COPY,
)


def told_of(record: Record) -> Iterator[tuple[str, FactKind, str]]:
    """Name, kind and value of each fact."""
    packages = {name: _text(version) for name, version in _told(record, "packages")}
    known: list[tuple[str, FactKind, str]] = [(name, kind, read(record)) for name, kind, read in _READERS]
    known += [
        (f"{name} code", "version", _identity(packages.get(name, ""), one)) for name, one in _told(record, "code")
    ]
    known += [(name, "version", version) for name, version in packages.items()]
    variables = ((name, _text(value)) for name, value in _told(record, "variables"))
    # without paths and devices, which launches choose
    known += [
        (name, "setting", value)
        for name, value in variables
        if "/" not in value and not name.endswith("VISIBLE_DEVICES")
    ]
    for name, kind, value in known:
        if value:
            yield name, kind, value


def facts_of(records: Iterable[Record]) -> dict[str, tuple[FactKind, tuple[str, ...]]]:
    """By name, with distinct values."""
    found: dict[str, tuple[FactKind, set[str]]] = {}
    for record in records:
        for name, kind, value in told_of(record):
            found.setdefault(name, (kind, set()))[1].add(value)
    return {name: (kind, tuple(sorted(values))) for name, (kind, values) in found.items()}


def _apart(figure: Figure, before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the middle halves of both sides (of few values all) lie apart, and their medians by over a quarter."""
    if not before or not after:
        return False
    lower, higher = sorted((sorted(max(one, figure.least) for one in side) for side in (before, after)), key=median)
    overlapping = higher[len(higher) // 4] <= lower[-1 - len(lower) // 4]
    return not overlapping and (median(lower) <= 0 or median(higher) / median(lower) > _ALIKE)


def figure_text(figure: Figure, values: Sequence[float], digits: int = 3) -> str:
    """``0.9 to 1.2 TFLOP/s``: the least and the most."""
    low, high = (number(value / figure.scale, digits) for value in (min(values), max(values)))
    return f"{low if low == high else f'{low} to {high}'} {figure.unit}".rstrip()


class EnvironmentDifference(Frozen):
    """A fact that is not the same on both sides, with the values of each; empty where a side does not tell it."""

    name: str
    kind: FactKind
    before: str
    after: str


def environment_differences(before: Sequence[Record], after: Sequence[Record]) -> tuple[EnvironmentDifference, ...]:
    return tuple(
        EnvironmentDifference(name=name, kind=kind, before=", ".join(old), after=", ".join(new))
        for name, kind, old, new in (*facts_of_both(before, after), *figures_apart(before, after))
        if old != new
    )


def facts_of_both(before: Sequence[Record], after: Sequence[Record]) -> Iterator[FactOfBoth]:
    first, second = facts_of(before), facts_of(after)
    for name in dict.fromkeys((*first, *second)):
        kind, _ = first.get(name) or second[name]
        old, new = (tuple(map(short_image, side[name][1])) if name in side else () for side in (first, second))
        yield name, kind, old, new


def figures_apart(before: Sequence[Record], after: Sequence[Record]) -> Iterator[FactOfBoth]:
    """Measured figures of the machine that are others on the second side, as text."""
    for figure in _FIGURES:
        old, new = ([one for one in map(figure.read, side) if one is not None] for side in (before, after))
        if _apart(figure, old, new):
            yield figure.name, "state", (figure_text(figure, old, 2),), (figure_text(figure, new, 2),)
