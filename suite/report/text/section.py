"""What sections of the report are made of: their blocks, the parts that they make together, and columns that tables
share, of what names a row and of what rows differ in."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from suite.bundle.imported.record import ImportedPhase
from suite.report.facts.costs import PhaseCost
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, interval, number, percent


class Heading(NamedTuple):
    text: str


class Bullets(NamedTuple):
    lines: tuple[str, ...]


class Listing(NamedTuple):
    """Lines as they are."""

    lines: tuple[str, ...]
    language: str = ""


class Pointer(NamedTuple):
    """A paragraph, and the headings of the sections that say more of it."""

    text: str
    headings: tuple[str, ...]


#: A string is a paragraph. Every text is marked (``suite.report.formatting.escape``), but for those of listings.
Block = str | Heading | Bullets | Listing | Pointer | Table


@dataclass(frozen=True)
class Section:
    """Empty blocks are dropped, and a section without blocks. ``picture``: name in ``suite.report.plots``.
    ``needs_rows``: not in a report without rows. ``is_folded``: it is looked up, not read. ``is_beside``: the Markdown
    has it in a file of its own."""

    heading: str
    blocks: Callable[[ReportModel], Iterable[Block]]
    picture: str = ""
    needs_rows: bool = True
    is_folded: bool = False
    is_beside: bool = False


class Part(NamedTuple):
    """What a section has to say of one report."""

    section: Section
    blocks: tuple[Block, ...]


def parts_of(model: ReportModel, sections: Sequence[Section]) -> tuple[Part, ...]:
    parts = []
    for section in sections:
        made = section.blocks(model) if model.rows or not section.needs_rows else ()
        blocks = tuple(one for one in made if (one.lines if isinstance(one, Bullets | Listing) else one))
        parts += [Part(section, blocks)] if blocks else []
    return tuple(parts)


def anchor(heading: str) -> str:
    """Of a section, as GitHub and the page name it."""
    return heading.lower().replace(" ", "-")


def bullets(lines: Iterable[str]) -> Bullets:
    return Bullets(tuple(lines))


Item = TypeVar("Item")
#: A column with what it shows of a row.
Shown = tuple[Column, Callable[[Row], str]]

IDENTITY: tuple[Shown, ...] = (
    (Column("row", False), lambda row: row.name),
    (Column("size", False), lambda row: inline(row.size)),
    (Column("ranks"), lambda row: str(row.ranks)),
    (Column("backend", False), lambda row: inline(row.backend)),
    (Column("layout", False), lambda row: row.layout),
)
#: What names a row where its size, ranks and backend are only to remind of it; the first table has them all.
LABEL: Shown = (Column("row", False), lambda row: label(row))


def label(row: Row) -> str:
    """``R3 deepspeed 1M x2``: x2, on two ranks."""
    return f"{row.name} {inline(row.backend)} {inline(row.size)} x{row.ranks}"


def rate(row: Row) -> str:
    """Samples/s, or why there is none."""
    if not row.measured:
        return row.without_rate
    return interval(row.samples_per_second) + (" (1 run)" if len(row.measured) == 1 else "")


#: Under what rows were measured.
SETTING: tuple[Shown, ...] = (
    (Column("kind", False), lambda row: row.setting.kind),
    (Column("track", False), lambda row: row.setting.track),
    (Column("clock", False), lambda row: inline(row.setting.clock)),
    (Column("machine", False), lambda row: row.setting.machine),
    (Column("device", False), lambda row: row.setting.device),
    (Column("precision", False), lambda row: row.setting.precision),
    (Column("threads/rank"), lambda row: str(row.setting.threads_per_rank)),
    (Column("iterations", False), lambda row: "asynchronous" if row.setting.asynchronous else "synchronous"),
)
#: Columns where rows differ in them; what all rows share is one line of text (``common``).
_VARYING: tuple[Shown, ...] = (
    *SETTING,
    (Column("algorithm", False), lambda row: inline(row.work.algorithm)),
    (Column("model", False), lambda row: inline(row.work.family)),
    (Column("workload", False), lambda row: inline(row.manifest.workload.name)),
    (Column("scaling", False), lambda row: row.manifest.workload.scaling),
    (Column("nodes"), lambda row: str(row.manifest.layout.nodes)),
    (Column("variant", False), lambda row: inline(row.variant) if row.variant else UNKNOWN),
)


def varying(rows: Sequence[Row]) -> tuple[Shown, ...]:
    """The columns in which rows differ, one where several tell the same rows apart."""
    found: dict[tuple[int, ...], Shown] = {}
    for column, show in _VARYING:
        cells = [show(row) for row in rows]
        if len(set(cells)) > 1:
            found.setdefault(tuple(map(cells.index, cells)), (column, show))
    return tuple(found.values())


def common(rows: Sequence[Row]) -> str:
    """``name value`` of what all rows share."""
    shared = [(column.title, {show(row) for row in rows}) for column, show in _VARYING]
    return ", ".join(f"{title} {found.pop()}" for title, found in shared if len(found) == 1 and found != {UNKNOWN})


def table_of(
    columns: Sequence[tuple[Column, Callable[[Item], str]]], items: Sequence[Item], notes: Iterable[str] = ()
) -> Table:
    """What each column shows of each item. ``notes``: read last, since cells mark some."""
    cells = tuple(tuple(show(item) for _, show in columns) for item in items)
    return Table(tuple(column for column, _ in columns), cells, tuple(notes))


def shown(fact: str, show: Callable[[Any], str] = number) -> Callable[[Row], str]:
    """Of a fact that not every row has, by its dotted name: ``memory.peak_bytes``."""

    def cell(row: Row) -> str:
        found: Any = row
        for name in fact.split("."):
            found = None if found is None else getattr(found, name)
        return UNKNOWN if found is None else show(found)

    return cell


def seconds(name: str, costs: Literal["phases", "parts"] = "phases") -> Callable[[Row], str]:
    """Of a phase, or a part of one, by its name: per iteration, and share of it in percent."""

    return shown(costs, lambda known: with_share(next((cost for cost in known if cost.name == name), None)))


def with_share(cost: PhaseCost | ImportedPhase | None) -> str:
    if cost is None:
        return UNKNOWN
    return number(cost.seconds) + ("" if cost.share is None else f" ({percent(cost.share)})")
