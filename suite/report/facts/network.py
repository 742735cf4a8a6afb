"""What the ranks measured of their network before the runs, beside what the catalogue has for their device."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from suite.bundle.facts import inner, listed_objects, positive
from suite.bundle.record import Record
from suite.report.facts.pool import Row, RowRuns
from suite.spec.catalogue import find_device

if TYPE_CHECKING:
    from suite.planner.hardware import Hardware

#: Scope of the worker's figures -> what a reader calls it, in the order of the report.
SCOPES = {"within_node": "within a node", "across_nodes": "across nodes", "all_ranks": "all ranks"}
PATTERNS = ("all_reduce", "all_gather", "send_receive")
_MOST_ROWS, _MOST_SIZES = 8, 16


@dataclass(frozen=True)
class Bandwidths:
    """Bus bandwidths, bytes per second, and the seconds of the smallest all-reduce; null where not measured."""

    all_reduce: float | None
    all_gather: float | None
    send_receive: float | None
    latency_seconds: float | None


@dataclass(frozen=True)
class NetworkLine:
    """One scope of the runs on so many ranks and nodes of a machine: medians over the runs, and the slowest run.
    ``catalogue_bytes_per_second``: per device and direction, as the planner assumes; null where it knows none."""

    machine: str
    ranks: int
    nodes: int
    scope: str
    rows: tuple[int, ...]
    runs: int
    measured: Bandwidths
    lowest_all_reduce: float | None
    catalogue_bytes_per_second: float | None


class NetworkRun(NamedTuple):
    row: int
    record: Record
    scopes: dict[str, Bandwidths]


#: By (machine, nodes, ranks), in this order.
NetworkRuns = dict[tuple[str, int, int], list[NetworkRun]]


def network_runs(rows: Sequence[Row], groups: Sequence[RowRuns]) -> NetworkRuns:
    """The runs that measured their network. ``groups``: the runs of each row."""
    found: NetworkRuns = defaultdict(list)
    for row, group in zip(rows, groups, strict=True):
        for entry in group.entries:
            if scopes := _scopes_of(entry.record):
                found[group.machine, row.nodes, row.ranks].append(NetworkRun(row.number, entry.record, scopes))
    return dict(sorted(found.items()))


def network_lines(alike: NetworkRuns) -> tuple[NetworkLine, ...]:
    return tuple(
        NetworkLine(
            machine=machine,
            ranks=ranks,
            nodes=nodes,
            scope=scope,
            rows=tuple(sorted({run.row for run in runs if scope in run.scopes})),
            runs=len(measured),
            measured=Bandwidths(*map(_median, zip(*map(astuple, measured), strict=True))),
            lowest_all_reduce=min((one.all_reduce for one in measured if one.all_reduce), default=None),
            catalogue_bytes_per_second=_catalogue(runs[0].record, scope),
        )
        for (machine, nodes, ranks), runs in alike.items()
        for scope in SCOPES
        if (measured := [run.scopes[scope] for run in runs if scope in run.scopes])
    )


def row_names(rows: Sequence[int]) -> str:
    """``R1, R2 and 5 more``."""
    left = len(rows) - _MOST_ROWS
    names = ", ".join(f"R{row}" for row in rows[:_MOST_ROWS])
    return f"{names} and {left} more" if left > 0 else names


def hardware_here(record: Record) -> "Hardware | None":
    """What the catalogue has for the run's accelerator."""
    name = inner(record.environment.worker, "device", "name")
    device = find_device(name) if record.run.device == "cuda" and isinstance(name, str) else None
    if device is None:
        return None
    from suite.planner.hardware import hardware_of  # which a CPU does without

    return hardware_of(device)


class Exchange(NamedTuple):
    """What the worker measured of one pattern in one scope. ``sizes``: bytes of a message, bus bytes per second."""

    scope: str
    pattern: str
    ranks: int | None
    sizes: tuple[tuple[int, float], ...]
    latency_seconds: float | None


def exchanges(record: Record) -> Iterator[Exchange]:
    """Those with a size at least. What is not as the worker writes it is left out."""
    for one in listed_objects(inner(record.environment.worker, "network", "measurements")):
        scope, pattern, ranks = one.get("scope"), one.get("pattern"), one.get("ranks")
        if isinstance(scope, str) and scope in SCOPES and isinstance(pattern, str) and pattern in PATTERNS:
            known = ranks if type(ranks) is int and 1 < ranks < 1 << 20 else None
            told = [
                (it.get("bytes"), positive(it.get("bus_bytes_per_second"))) for it in listed_objects(one.get("sizes"))
            ]
            sizes = tuple((size, rate) for size, rate in told if type(size) is int and 0 < size < 1 << 50 and rate)
            if sizes:
                yield Exchange(scope, pattern, known, sizes[:_MOST_SIZES], positive(one.get("latency_seconds")))


def _scopes_of(record: Record) -> dict[str, Bandwidths]:
    """The largest bus bandwidth over the message sizes, by scope."""
    found: dict[str, Bandwidths] = defaultdict(lambda: Bandwidths(None, None, None, None))
    for one in exchanges(record):
        reached = {one.pattern: max(rate for _, rate in one.sizes)}
        latency = {"latency_seconds": one.latency_seconds} if one.pattern == "all_reduce" else {}
        found[one.scope] = replace(found[one.scope], **reached, **latency)
    return found


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _catalogue(record: Record, scope: str) -> float | None:
    hardware = hardware_here(record)
    return {"within_node": hardware.link, "across_nodes": hardware.network}.get(scope) if hardware else None
