"""Rows of other tools' logs, apart from all that was measured."""

from collections.abc import Callable, Iterator

from suite.bundle.imported.record import MARK, ImportedRecord
from suite.report.facts.entry import grouped
from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import code, inline, prose
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import counted, few, gib, number
from suite.report.text.section import Block, bullets, with_share
from suite.spec.phases import ALL

_WORK = ("samples", "prompt_tokens", "response_tokens")


def imported_rows(model: ReportModel) -> Iterator[Block]:
    rows = model.imported
    if not rows:
        return
    yield (
        f"{counted(len(rows), 'row')} from other tools' own logs, each {MARK}: these figures are as the tool logged "
        "them, with what the importer told beside. They are in no ranking, comparison, scaling or verdict here."
    )
    # rows that were measured are R1, R2
    named = [(f"I{place}", row.record) for place, row in enumerate(rows, start=1)]
    cells = ((name, *(show(record) for _, show in _COLUMNS)) for name, record in named)
    yield Table((Column("row", False), *(column for column, _ in _COLUMNS)), tuple(cells))
    phases = [phase for phase in ALL if any(phase.name in record.phases for _, record in named)]
    if phases:
        yield "Seconds of a step by the tool's own timers (share of the step in %):"
        seconds = ((name, *(with_share(record.phases.get(phase.name)) for phase in phases)) for name, record in named)
        yield Table((Column("row", False), *(Column(phase.label) for phase in phases)), tuple(seconds))
    yield "Where they are from:"
    yield bullets(few([f"{name}: {_origin(record)}" for name, record in named]))


def _joined(*texts: object) -> str:
    return inline(" ".join(str(text) for text in texts if text))


_COLUMNS: tuple[tuple[Column, Callable[[ImportedRecord], str]], ...] = (
    (Column("tool", False), lambda one: _joined(one.tool, one.told.tool_version)),
    (Column("model (told)", False), lambda one: inline(one.told.model)),
    (Column("devices (told)"), lambda one: _joined(one.told.devices, one.told.device)),
    (Column("steps"), lambda one: str(one.steps.counted)),
    (Column("s/step"), lambda one: number(one.step_seconds)),
    (Column("samples/s"), lambda one: number(one.throughput.samples_per_second)),
    (Column("tokens/s"), lambda one: number(one.throughput.tokens_per_second)),
    (Column("samples/step"), lambda one: number(one.counts.samples)),
    (Column("peak GiB"), lambda one: gib(one.memory.peak_reserved_bytes or one.memory.peak_allocated_bytes)),
)


def _origin(record: ImportedRecord) -> str:
    known = record.told
    told = [(record.counts.sources.get(name), name.replace("_", " ")) for name in _WORK]
    sources = grouped((source, name) for source, name in told if source is not None)
    facts = [
        f"{inline(record.id)}, {record.tool}'s {record.form} log of {record.log.bytes:,} bytes",
        f"SHA-256 {code(record.log.sha256)}",
        f"steps {record.steps.first} to {record.steps.last}, {record.steps.warmup} left out before",
        *(f"{', '.join(labels)}: {source}" for source, labels in sources.items()),
        f"algorithm told: {inline(known.algorithm)}" if known.algorithm else "",
        f"published at {inline(known.source)}" if known.source else "",
        f"the importer notes: {prose(known.note)}" if known.note else "",
        *map(prose, record.notes),
    ]
    return "; ".join(filter(None, facts))
