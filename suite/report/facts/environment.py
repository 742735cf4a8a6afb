"""What was around a measurement: device, links, versions, launcher, state; and how two sides differ in it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Literal, NamedTuple

from suite.bundle.facts import inner, listed_objects, positive
from suite.bundle.record import Record
from suite.report.facts.variants import image_ids, launch_setting_of, short_image
from suite.report.formatting.numbers import GIB, number
from suite.spec.base import Frozen

FactKind = Literal["machine", "version", "launch", "setting", "state", "host"]
#: Measured figures of both sides that are within this factor of each other say nothing.
_ALIKE = 1.25
#: A load below this share of the processors tells nothing: the run's own start and the run before it are in it.
_QUIET = 1.0

IMAGE = "image"
Reader = Callable[[Record], str]


class FactReader(NamedTuple):
    """How one fact is read off a record; empty text where it is not told."""

    name: str
    kind: FactKind
    read: Reader


class Figure(NamedTuple):
    """A measured figure of a machine, which no two runs have alike: it differs where the sides lie apart. ``least``:
    what is below it counts as this much."""

    name: str
    unit: str
    scale: float
    read: Callable[[Record], float | None]
    least: float = 0.0


def fact_text(value: Any) -> str:
    """A scalar or a list of scalars as text; empty for null and for anything else."""
    if isinstance(value, list) and all(isinstance(one, (str, int)) for one in value):
        return ".".join(str(one) for one in value)
    return str(value) if isinstance(value, (str, int, float)) else ""


def worker(*names: str) -> Reader:
    """Of a fact that rank 0 told of where it ran."""
    return lambda record: fact_text(inner(record.environment.worker, *names))


def driver(*names: str) -> Reader:
    """Of a fact of environment.json."""
    return lambda record: fact_text(inner(record.environment.driver, *names))


def _figure(*names: str) -> Callable[[Record], float | None]:
    def read(record: Record) -> float | None:
        value = inner(record.environment.worker, *names)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    return read


def _bytes(*names: str) -> Reader:
    """In GiB, to a digit behind the point: kernels of one machine do not always keep the same few pages."""
    read = _figure(*names)
    return lambda record: "" if (size := read(record)) is None else f"{size / GIB:.1f} GiB"


def commit_of(record: Record) -> str:
    """``3340c2f3a1b2 with changes``: of the suite that drove the run; empty where it was no checkout."""
    commit, _, changed = driver("git_commit")(record).partition("+")
    return f"{commit[:12]}{' with changes' if changed else ''}" if commit else ""


def _variables(record: Record) -> dict[str, str]:
    """What the environment of the ranks sets for their libraries; without paths and devices, which launches choose."""
    found = inner(record.environment.worker, "variables")
    known = {name: fact_text(value) for name, value in found.items()} if isinstance(found, Mapping) else {}
    return {name: value for name, value in known.items() if "/" not in value and not name.endswith("VISIBLE_DEVICES")}


def packages_of(record: Record) -> dict[str, str]:
    found = inner(record.environment.worker, "packages")
    return {name: fact_text(version) for name, version in found.items()} if isinstance(found, Mapping) else {}


def _code(record: Record) -> dict[str, str]:
    """``0.19.8 62b72323 (commit 3340c2f3a1b2 with changes, editable)``, by package."""
    found = inner(record.environment.worker, "code")
    known = found if isinstance(found, Mapping) else {}
    return {f"{name} code": _identity(packages_of(record).get(name, ""), one) for name, one in known.items()}


def _identity(version: str, code: Any) -> str:
    commit = fact_text(inner(code, "commit"))[:12]
    words = [f"commit {commit}{' with changes' if inner(code, 'changed') is True else ''}"] if commit else []
    words += ["editable"] if inner(code, "editable") is True else []
    more = f" ({', '.join(words)})" if words else ""
    return f"{version} {fact_text(inner(code, 'digest'))[:8]}{more}"


def _with_unit(unit: str, *names: str) -> Reader:
    return lambda record: f"{text} {unit}" if (text := worker(*names)(record)) else ""


def links_text(record: Record) -> str:
    """``8 x 18 NVLinks, PCIe 5 x16``: links that are up, and the slot; empty where nothing is known."""
    return _counted(map(_gpu, gpus(record)))


def adapters_text(record: Record) -> str:
    """``8 x 400 Gb/s InfiniBand``: ports that are up; empty for none."""
    return _counted(map(_adapter, active_adapters(record)))


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


def _gpu(gpu: dict[str, Any]) -> str:
    generation, width = inner(gpu, "pcie", "max_generation"), inner(gpu, "pcie", "width")
    parts = (_nvlinks(gpu), f"PCIe {generation} x{width}" if positive(generation) and positive(width) else "")
    return ", ".join(filter(None, parts))


def _adapter(adapter: dict[str, Any]) -> str:
    rate, layer = positive(adapter.get("bits_per_second")), adapter.get("link_layer")
    known = layer if isinstance(layer, str) else ""
    return f"{number(rate / 1e9)} Gb/s {known}".strip() if rate else known


def _counted(texts: Iterable[str]) -> str:
    counts = Counter(text for text in texts if text)
    return "; ".join(f"{count} x {text}" for text, count in counts.most_common(3))


READERS: tuple[FactReader, ...] = (
    FactReader("device", "machine", lambda it: "CPU" if it.run.device == "cpu" else worker("device", "name")(it)),
    FactReader("devices of the host", "machine", worker("device", "count")),
    FactReader("device memory", "machine", _bytes("device", "memory_bytes")),
    FactReader("CPU", "machine", worker("cpu", "model")),
    FactReader("cores", "machine", worker("cpu", "cores")),
    FactReader("hardware threads", "machine", worker("cpu", "threads")),
    FactReader("host memory", "machine", _bytes("memory_bytes")),
    FactReader("NVLinks", "machine", lambda record: "".join(link_kinds(record)[:1])),
    FactReader("network adapters", "machine", adapters_text),
    FactReader("top clock", "machine", _with_unit("MHz", "idle", "sm_clock_mhz_max")),
    FactReader("power limit", "machine", _with_unit("W", "idle", "power_limit_watts")),
    FactReader("driver", "version", worker("driver")),
    FactReader("CUDA", "version", worker("cuda")),
    FactReader("NCCL", "version", worker("nccl")),
    FactReader("kernel", "version", worker("kernel")),
    FactReader("Python", "version", worker("python")),
    FactReader("suite", "version", driver("suite_version")),
    FactReader("suite's commit", "version", commit_of),
    FactReader(IMAGE, "version", lambda record: launch_setting_of(record).image or "none"),
    FactReader("launcher", "launch", lambda record: record.run.launcher or ""),
    FactReader("runs at once", "launch", lambda record: str(launch_setting_of(record).at_once or "")),
    FactReader("container runtime", "launch", driver("engine", "name")),
    FactReader("container runtime's version", "version", driver("engine", "version")),
    FactReader("torch threads", "setting", worker("threads", "torch")),
    FactReader("usable CPUs", "machine", worker("threads", "cpus")),
    FactReader("CPUs of a rank", "launch", worker("affinity", "cpus")),
    FactReader("allocator", "setting", worker("allocator", "backend")),
    FactReader("TF32", "setting", worker("allow_tf32")),
    FactReader("held down by", "state", worker("idle", "throttle_reasons")),
    FactReader("host", "host", worker("host")),
)


def _load(record: Record) -> float | None:
    """Per processor that the rank may use."""
    load, cpus = _figure("idle", "load")(record), positive(inner(record.environment.worker, "idle", "cpus"))
    return None if load is None or cpus is None else load / cpus


#: What simple kernels reached on the device before the run.
PRODUCT = Figure("measured matrix product", "TFLOP/s", 1e12, _figure("ceilings", "matmul_flops"))
COPY = Figure("measured copy", "GB/s", 1e9, _figure("ceilings", "copy_bytes_per_second"))
FIGURES: tuple[Figure, ...] = (
    Figure("load per CPU at the start", "", 1, _load, _QUIET),
    Figure("clock before the run", "MHz", 1, _figure("idle", "sm_clock_mhz")),
    PRODUCT,
    COPY,
)


def facts_of(records: Sequence[Record], ids: Mapping[str, str]) -> dict[str, tuple[FactKind, tuple[str, ...]]]:
    """Every fact that a record tells, by its name, with its distinct values; packages and variables are facts of their
    own. ``ids``: of images that are named by digest (``image_ids``)."""
    found: dict[str, tuple[FactKind, set[str]]] = {}
    for record in records:
        known: list[tuple[str, FactKind, str]] = [(one.name, one.kind, one.read(record)) for one in READERS]
        known += [(name, "version", version) for name, version in {**_code(record), **packages_of(record)}.items()]
        known += [(name, "setting", value) for name, value in _variables(record).items()]
        for name, kind, value in known:
            if name == IMAGE:
                value = short_image(ids.get(value, value))
            if value:
                found.setdefault(name, (kind, set()))[1].add(value)
    return {name: (kind, tuple(sorted(values))) for name, (kind, values) in found.items()}


def _apart(figure: Figure, before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the middle halves of both sides lie apart, and their medians by more than a quarter."""
    if not before or not after:
        return False
    first, second = (sorted(max(value, figure.least) for value in values) for values in (before, after))
    overlapping = _middle(first)[0] <= _middle(second)[1] and _middle(second)[0] <= _middle(first)[1]
    low, high = sorted((median(first), median(second)))
    return not overlapping and (low <= 0 or high / low > _ALIKE)


def _middle(values: Sequence[float]) -> tuple[float, float]:
    """Bounds of the middle half of sorted values; of few values all of them."""
    left_out = len(values) // 4
    return values[left_out], values[-1 - left_out]


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
    """Over all records of each side, in the order in which a report lists the facts."""
    found = [(name, kind, ", ".join(old), ", ".join(new)) for name, kind, old, new in facts_of_both(before, after)]
    found += [(name, "state", old, new) for name, old, new in figures_apart(before, after)]
    differing = [EnvironmentDifference(name=name, kind=kind, before=old, after=new) for name, kind, old, new in found]
    return tuple(one for one in differing if one.before != one.after)


def facts_of_both(
    before: Sequence[Record], after: Sequence[Record]
) -> Iterator[tuple[str, FactKind, tuple[str, ...], tuple[str, ...]]]:
    ids = image_ids((*before, *after))
    first, second = facts_of(before, ids), facts_of(after, ids)
    for name in dict.fromkeys((*first, *second)):
        kind, _ = first.get(name) or second[name]
        old, new = (side[name][1] if name in side else () for side in (first, second))
        yield name, kind, old, new


def figures_apart(before: Sequence[Record], after: Sequence[Record]) -> Iterator[tuple[str, str, str]]:
    """Measured figures of the machine that are others on the second side, as text."""
    for figure in FIGURES:
        old, new = ([one for one in map(figure.read, side) if one is not None] for side in (before, after))
        if _apart(figure, old, new):
            yield figure.name, figure_text(figure, old, 2), figure_text(figure, new, 2)
