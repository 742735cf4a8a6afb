"""The network that the ranks measured before their runs, beside the catalogue's."""

from collections.abc import Callable, Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.network import SCOPES, NetworkLine, row_names
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, number, percent
from suite.report.text.section import Block, Section

_WHAT = (
    "Measured before each run by its own process group, in GB/s as nccl-tests counts bus bandwidth: comparable with "
    "what one device's link carries in one direction. Of the message size that reached most, median of the runs. "
    "Latency: an all-reduce of four bytes."
)
_CATALOGUE = "Catalogue: what the device's links, or the network of its maker's own systems, carry in one direction."

_COLUMNS: tuple[tuple[Column, Callable[[NetworkLine], str]], ...] = (
    (Column("rows", False), lambda line: row_names(line.rows)),
    (Column("machine", False), lambda line: line.machine),
    (Column("ranks"), lambda line: str(line.ranks)),
    (Column("nodes"), lambda line: str(line.nodes)),
    (Column("where", False), lambda line: SCOPES[line.scope]),
    (Column("runs"), lambda line: str(line.runs)),
    (Column("all-reduce"), lambda line: _gigabytes(line.measured.all_reduce)),
    (Column("slowest run"), lambda line: _gigabytes(line.lowest_all_reduce)),
    (Column("all-gather"), lambda line: _gigabytes(line.measured.all_gather)),
    (Column("send and receive"), lambda line: _gigabytes(line.measured.send_receive)),
    (Column("latency us"), lambda line: _microseconds(line.measured.latency_seconds)),
)
_BESIDE: tuple[tuple[Column, Callable[[NetworkLine], str]], ...] = (
    (Column("catalogue"), lambda line: _gigabytes(line.catalogue_bytes_per_second)),
    (Column("all-reduce of it %"), lambda line: _share(line)),
)


def _blocks(model: ReportModel) -> Iterator[Block]:
    lines = model.networks
    if lines:
        is_known = any(line.catalogue_bytes_per_second for line in lines)
        columns = (*_COLUMNS, *_BESIDE) if is_known else _COLUMNS
        tells = {"machine": len(model.machines) > 1, "slowest run": any(line.runs > 1 for line in lines)}
        columns = tuple((column, show) for column, show in columns if tells.get(column.title, True))
        yield f"{_WHAT} {_CATALOGUE}" if is_known else _WHAT
        cells = tuple(tuple(show(line) for _, show in columns) for line in lines)
        yield Table(tuple(column for column, _ in columns), cells)


def _gigabytes(bytes_per_second: float | None) -> str:
    return UNKNOWN if bytes_per_second is None else number(bytes_per_second / 1e9)


def _microseconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else number(seconds * 1e6)


def _share(line: NetworkLine) -> str:
    reached, catalogue = line.measured.all_reduce, line.catalogue_bytes_per_second
    return percent(reached / catalogue) if reached and catalogue else UNKNOWN


SECTION = Section("Network", _blocks, is_beside=True)
