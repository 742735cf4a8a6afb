"""What the runs were measured on: rows of unlike hardware are never pooled or ranked together."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from suite.bundle.facts import inner
from suite.bundle.record import Record
from suite.report.facts import environment as around
from suite.report.facts.costs import texts_of
from suite.report.facts.entry import Entry, grouped
from suite.report.formatting.numbers import counted, few, number

#: Most distinct values of one fact that are written out.
_MOST_VALUES = 4
_MOST_PACKAGES = 60
_UNKNOWN_MACHINE = "?"
_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

_DEVICE_MEMORY = around.in_gib("device", "memory_bytes", show=number)
_CPU = (
    around.worker("cpu", "model"),
    around.with_unit("cores", "cpu", "cores"),
    around.with_unit("threads", "cpu", "threads"),
)
#: What the hardware is, as far as it decides about speed: device, then processor where that is the device, else links.
Hardware = tuple[str, ...]


@dataclass(frozen=True)
class Fact:
    """More than one value: the runs differ, and each value has its number of runs."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """``device_memory_bytes``: the least that any run's accelerator has; null on a CPU."""

    letter: str
    is_cpu: bool
    name: str
    runs: int
    device_memory_bytes: int | None
    facts: tuple[Fact, ...]
    notes: tuple[Fact, ...]


def assign_machines(entries: Sequence[Entry]) -> tuple[list[str], tuple[Machine, ...]]:
    """The letter of each entry's machine, and the machines. A run that died before it told its hardware belongs to that
    of its repeats where they have one, else to the only machine of the report, else to ``?``."""
    found = [hardware_of(entry.record) for entry in entries]
    whole = {hardware: _whole(hardware, found) for hardware in set(found) if hardware}
    known = [hardware and whole[hardware] for hardware in found]
    letters = {  # A to Z, then A1, B1 ...
        hardware: ascii_uppercase[index % 26] + str(index // 26 or "")
        for index, hardware in enumerate(sorted({one for one in known if one}))
    }
    assigned = [letters[one] if one else "" for one in known]
    of_manifest = grouped((entry.manifest.hash, letter) for entry, letter in zip(entries, assigned, strict=True))
    for place, entry in enumerate(entries):
        candidates = {*of_manifest[entry.manifest.hash]} - {""} or {*letters.values()}
        if not assigned[place]:
            assigned[place] = next(iter(candidates)) if len(candidates) == 1 else _UNKNOWN_MACHINE
    records = grouped((letter, entry.record) for letter, entry in zip(assigned, entries, strict=True))
    return assigned, tuple(_machine(letter, records[letter]) for letter in sorted(records))


def _whole(hardware: Hardware, known: Sequence[Hardware | None]) -> Hardware:
    """With the links of the only machine that is like it in all else, where they are not known of it."""
    longer = {one for one in known if one and len(one) > len(hardware) and one[: len(hardware)] == hardware}
    return next(iter(longer)) if len(longer) == 1 else hardware


def hardware_of(record: Record) -> Hardware | None:
    """Null of a run that died before it told where it was."""
    if record.environment.worker is None:
        return None
    if record.run.device == "cpu":
        return ("cpu", *(read(record) for read in _CPU))
    return ("cuda", around.worker("device", "name")(record), _DEVICE_MEMORY(record), *around.link_kinds(record))


def _machine(letter: str, records: Sequence[Record]) -> Machine:
    readers: tuple[tuple[str, around.Reader], ...] = (
        ("device", _device),
        ("CPU", _cpu),
        ("host memory", around.in_gib("memory_bytes", show=number)),
        ("links", around.links_text),
        *((name, around.READERS[name]) for name in ("network adapters", "host", "kernel")),
        ("image", around.worker("image")),
        ("image in its registry", around.driver("image", "digest")),
        ("launcher", around.READERS["launcher"]),
        (
            "container runtime",
            lambda it: f"{around.driver('engine', 'name')(it)} {around.driver('engine', 'version')(it)}".strip(),
        ),
        *((name, around.READERS[name]) for name in ("driver", "CUDA", "NCCL", "Python")),
        (
            "suite",
            lambda it: _listed(
                around.driver("suite_version")(it), f"commit {commit}" if (commit := around.commit_of(it)) else ""
            ),
        ),
    )
    keys = [(id(record.environment), record.run.device, record.run.launcher) for record in records]
    alike = dict(zip(keys, records, strict=True))  # many runs share one environment, and its texts are made once
    facts = []
    for name, reader in readers:
        texts = {key: reader(record) for key, record in alike.items()}
        facts.append(Fact(name, _values([texts[key] for key in keys])))
    packages = grouped(package for record in records for package in around.packages_of(record).items())
    facts += [Fact(name, _values(packages[name])) for name in sorted(packages)[:_MOST_PACKAGES]]
    left = max(0, len(packages) - _MOST_PACKAGES)
    facts += [Fact("more packages", (f"{left}, left out here",))] if left else []
    facts += _ceilings(records)
    names = (_cpu(one) if one.run.device == "cpu" else around.worker("device", "name")(one) for one in records)
    cuda = [record for record in records if record.run.device == "cuda"]
    sizes = [inner(record.environment.worker, "device", "memory_bytes") for record in cuda]
    return Machine(
        letter=letter,
        is_cpu=all(record.run.device == "cpu" for record in records),
        name=next(filter(None, names), "unknown hardware"),
        runs=len(records),
        device_memory_bytes=min((size for size in sizes if type(size) is int and size > 0), default=None),
        facts=tuple(fact for fact in facts if fact.values),
        notes=_notes(records),
    )


def _values(values: Sequence[str]) -> tuple[str, ...]:
    """Distinct ones, most frequent first; of several each with its number of runs."""
    found = Counter(sorted(filter(None, values))).most_common()
    if len(found) <= 1:
        return tuple(value for value, _ in found)
    return tuple(few([f"{value} ({counted(runs, 'run')})" for value, runs in found], _MOST_VALUES, "{} more"))


def _ceilings(records: Sequence[Record]) -> list[Fact]:
    """The rates that simple kernels reached on the device before the runs, lowest to highest."""
    facts = []
    for figure in (around.PRODUCT, around.COPY):
        by_runs: dict[str, list[float]] = defaultdict(list)
        for record in records:
            precision = record.run.precision
            dtype = around.worker("ceilings", "matmul_dtype")(record) if figure is around.PRODUCT else ""
            measured = _PRECISIONS.get(dtype, precision)
            # the product's was another one in older runs
            runs = f"{precision} runs" if measured == precision else f"in {measured}, {precision} runs"
            if (value := figure.read(record)) is not None:
                by_runs[runs].append(value)
        for runs, rates in sorted(by_runs.items()):
            text = f"{around.figure_text(figure, rates)}, {counted(len(rates), 'run')}"
            facts.append(Fact(f"{figure.name} ({runs})", (text,)))
    return facts


def _notes(records: Sequence[Record]) -> tuple[Fact, ...]:
    noted = ((note, one.run.backend) for one in records for note in (*texts_of(one, "notes"), *one.notes))
    found = sorted(grouped(noted).items())
    by_backends = grouped((", ".join(sorted(set(backends))), note) for note, backends in found)
    return tuple(Fact(backends, tuple(notes)) for backends, notes in sorted(by_backends.items()))


def _device(record: Record) -> str:
    name, count, capability = (around.worker("device", fact)(record) for fact in ("name", "count", "capability"))
    if record.run.device == "cpu" or not name:
        return "CPU" if record.environment.worker else ""
    whole = f"{count} x {name}" if count else name
    return _listed(whole, _DEVICE_MEMORY(record), f"capability {capability}" if capability else "")


def _cpu(record: Record) -> str:
    return _listed(*(read(record) for read in _CPU))


def _listed(*texts: str) -> str:
    return ", ".join(filter(None, texts))
