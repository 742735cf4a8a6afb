"""What the runs were measured on: rows of unlike hardware are never pooled or ranked together."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING

from suite.bundle.facts import inner
from suite.bundle.record import Record
from suite.report.facts import environment as around
from suite.report.facts.costs import texts_of
from suite.report.facts.entry import Entry, grouped
from suite.report.formatting.numbers import counted, few, number

if TYPE_CHECKING:
    from suite.report.facts.pool import Row

#: Most distinct values of one fact that are written out, and most facts.
_MOST_VALUES, _MOST_FACTS = 4, 100
#: Kinds of facts that are of one run more than of a machine.
_OF_RUNS = ("setting", "state")
_UNKNOWN_MACHINE = "?"

_DEVICE_MEMORY = around.in_gib("device", "memory_bytes", show=number)
_CPU = (
    around.worker("cpu", "model"),
    around.with_unit("cores", "cpu", "cores"),
    around.with_unit("threads", "cpu", "threads"),
)
_IN_REGISTRY = around.driver("image", "digest")
#: What the hardware is, as far as it decides about speed: device, then processor where that is the device, else links.
Hardware = tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """``device_memory_bytes``: the least of all accelerators; null on a CPU. ``facts``: values of each, several with
    their numbers of runs. ``notes``: what stacks say of themselves, by their names."""

    letter: str
    name: str
    device_memory_bytes: int | None
    facts: dict[str, tuple[str, ...]]
    notes: dict[str, tuple[str, ...]]


def assign_machines(entries: Sequence[Entry]) -> list[str]:
    """The letter of each entry's machine. A run that died before it told its hardware belongs to that
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
    return assigned


def machines_of(rows: "Sequence[Row]") -> tuple[Machine, ...]:
    records = grouped((row.setting.machine, entry.record) for row in rows for entry in row.entries)
    return tuple(_machine(letter, records[letter]) for letter in sorted(records))


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
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    # many runs share one environment, whose texts are made once
    shared = grouped(((id(one.environment), one.run.device, one.run.launcher), one) for one in records)
    for alike in shared.values():
        told = [*around.told_of(alike[0]), ("image in its registry", "version", _IN_REGISTRY(alike[0]))]
        for name, kind, value in told:
            if value and kind not in _OF_RUNS:
                counts[name][value] += len(alike)
    facts = {name: _values(counts[name]) for name in list(counts)[:_MOST_FACTS]}
    if left := len(counts) - len(facts):
        facts["more facts"] = (f"{left}, left out here",)
    hardware = next(filter(None, map(hardware_of, records)), ())
    cuda = [record for record in records if record.run.device == "cuda"]
    named = ", ".join(filter(None, hardware[1:2] if cuda else hardware[1:])) or "unknown hardware"
    sizes = [inner(record.environment.worker, "device", "memory_bytes") for record in cuda]
    return Machine(
        letter=letter,
        name="CPU " * (not cuda) + named,
        device_memory_bytes=min((size for size in sizes if type(size) is int and size > 0), default=None),
        facts=facts | _ceilings(records),
        notes=_notes(records),
    )


def _values(counts: Counter[str]) -> tuple[str, ...]:
    """The most frequent first."""
    if len(counts) <= 1:
        return tuple(counts)
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return tuple(few([f"{value} ({counted(runs, 'run')})" for value, runs in ordered], _MOST_VALUES, "{} more"))


def _ceilings(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """The rates that simple kernels reached on the device before the runs, lowest to highest; products by their type,
    which was not always that of the run."""
    dtype = around.worker("ceilings", "matmul_dtype")
    found: dict[tuple[around.Figure, str], list[float]] = defaultdict(list)
    for record in records:
        product = f" in {dtype(record) or record.run.precision}"
        for figure, more in ((around.PRODUCT, product), (around.COPY, "")):
            if (value := figure.read(record)) is not None:
                found[figure, figure.name + more].append(value)
    return {
        name: (f"{around.figure_text(figure, rates)}, {counted(len(rates), 'run')}",)
        for (figure, name), rates in sorted(found.items(), key=lambda one: one[0][1])
    }


def _notes(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """By the backends that tell the same."""
    noted = grouped((note, one.run.backend) for one in records for note in (*texts_of(one, "notes"), *one.notes))
    found = grouped((", ".join(sorted(set(backends))), note) for note, backends in sorted(noted.items()))
    return {backends: tuple(notes) for backends, notes in sorted(found.items())}
