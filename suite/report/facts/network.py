"""What the ranks measured of their network before the runs, beside what their hardware gives: in a report, and of one
run before a ladder.

Bus bandwidth is bytes over the slowest rank's seconds times 2(n-1)/n of n ranks, as nccl-tests counts it (its
doc/PERFORMANCE.md), so that it compares with what one device's link carries in one direction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from suite.bundle.facts import inner, listed_objects, positive
from suite.bundle.record import Record
from suite.report.facts.entry import grouped
from suite.report.facts.environment import active_adapters, gpus
from suite.report.facts.pool import Row
from suite.report.formatting.numbers import counted, few, number, percent
from suite.spec.base import Frozen, printable
from suite.spec.catalogue import find_device

if TYPE_CHECKING:
    from suite.planner.hardware import Hardware

#: Scope of the worker's figures -> what a reader calls it, in the order of the report.
SCOPES = {"within_node": "within a node", "across_nodes": "across nodes", "all_ranks": "all ranks"}
PATTERNS = ("all_reduce", "all_gather", "send_receive")
CONVENTION = "bytes / seconds x 2(n-1)/n, as nccl-tests counts"
_MOST_ROWS, _MOST_SIZES = 8, 16
#: A link that reaches less than this share of what it should is called slow. Over PCIe the messages of a ring share
#: bridges and cross sockets, so that a good machine is far from its slots' rate too.
_SLOW, _SLOW_PCIE = 0.5, 0.25
#: One direction of a lane, bytes per second by PCIe generation (PCI-SIG, rounded as the planner's x16 rates are).
_PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 1e9, 4: 2e9, 5: 4e9, 6: 8e9}


@dataclass(frozen=True)
class NetworkLine:
    """One scope over the runs on so many ranks and nodes of a machine. ``bus_bytes_per_second``: by pattern, the median
    of what the runs reached. ``expected_bytes_per_second``: of an all-reduce, null where nothing tells. ``latency``: of
    the smallest all-reduce."""

    machine: str
    ranks: int
    nodes: int
    scope: str
    rows: tuple[int, ...]
    runs: int
    bus_bytes_per_second: dict[str, float]
    latency_seconds: float | None
    expected_bytes_per_second: float | None


class NetworkCheck(Frozen):
    """What the all-reduce of a run reached within a node, across nodes, or of all ranks together."""

    scope: str
    sizes: tuple[tuple[int, float], ...] = Field(description="bytes of a message, bus bytes per second")
    bus_bytes_per_second: float = Field(description="of the size that reached most")
    expected_bytes_per_second: float | None = Field(description="null: neither catalogue nor adapters tell")
    expected_of: str | None = Field(description="what has them")
    warning: str | None = Field(description="that it is slow or switched off, and what to look at")

    def __str__(self) -> str:
        by_size = ", ".join(f"{_size(size)} {number(rate / 1e9)}" for size, rate in self.sizes)
        share, expected = "", self.expected_bytes_per_second
        if expected is not None:
            of = f"{number(expected / 1e9)} GB/s of {self.expected_of}"
            share = f", {percent(self.bus_bytes_per_second / expected)} % of the {of}"
        reached = f"{number(self.bus_bytes_per_second / 1e9)} GB/s{share}"
        return f"network {SCOPES[self.scope]}: all-reduce {reached} ({by_size})"


#: By (machine, nodes, ranks), in this order, each run with the number of its row.
NetworkRuns = dict[tuple[str, int, int], list[tuple[int, Record]]]


def network_runs(rows: Sequence[Row]) -> NetworkRuns:
    found = grouped(
        ((row.setting.machine, row.manifest.layout.nodes, row.ranks), (row.number, entry.record))
        for row in rows
        for entry in row.entries
    )
    return dict(sorted(found.items()))


def network_lines(alike: NetworkRuns) -> tuple[NetworkLine, ...]:
    lines = []
    for (machine, nodes, ranks), runs in alike.items():
        told = grouped((one.scope, (row, record, one)) for row, record in runs for one in exchanges(record))
        for scope in (scope for scope in SCOPES if scope in told):
            rates = grouped((one.pattern, one.most) for _, _, one in told[scope])
            latencies = [one.latency_seconds for _, _, one in told[scope] if one.pattern == "all_reduce"]
            known = [seconds for seconds in latencies if seconds is not None]
            expected = _expected(told[scope][0][1], scope)
            line = NetworkLine(
                machine=machine,
                ranks=ranks,
                nodes=nodes,
                scope=scope,
                rows=tuple(sorted({row for row, _, _ in told[scope]})),
                runs=len({id(record) for _, record, _ in told[scope]}),
                bus_bytes_per_second={pattern: median(reached) for pattern, reached in rates.items()},
                latency_seconds=median(known) if known else None,
                expected_bytes_per_second=expected.rate if expected else None,
            )
            lines.append(line)
    return tuple(lines)


def slow_networks(alike: NetworkRuns) -> tuple[str, ...]:
    """A line for each kind of network with runs that are warned of: what its slowest one is warned of."""
    lines = []
    for runs in alike.values():
        checks = ((row, check) for row, record in runs for check in network_checks(record) if check.warning)
        for members in grouped((check.scope, (row, check)) for row, check in checks).values():
            rows = row_names(sorted({row for row, _ in members}))
            slowest = min((check for _, check in members), key=lambda check: check.bus_bytes_per_second)
            lines.append(f"{rows} ({counted(len(members), 'run')}): {slowest.warning}")
    return tuple(lines)


def row_names(rows: Sequence[int]) -> str:
    """``R1, R2 and 5 more``."""
    return ", ".join(few([f"R{row}" for row in rows], _MOST_ROWS)).replace(", and", " and")


class Exchange(NamedTuple):
    """What the worker measured of one pattern in one scope. ``sizes``: bytes of a message, bus bytes per second."""

    scope: str
    pattern: str
    sizes: tuple[tuple[int, float], ...]
    latency_seconds: float | None

    @property
    def most(self) -> float:
        return max(rate for _, rate in self.sizes)


def exchanges(record: Record) -> Iterator[Exchange]:
    """Those with a size at least. What is not as the worker writes it is left out."""
    for one in listed_objects(inner(record.environment.worker, "network", "measurements")):
        scope, pattern = one.get("scope"), one.get("pattern")
        if isinstance(scope, str) and scope in SCOPES and isinstance(pattern, str) and pattern in PATTERNS:
            told = [
                (it.get("bytes"), positive(it.get("bus_bytes_per_second"))) for it in listed_objects(one.get("sizes"))
            ]
            sizes = tuple((size, rate) for size, rate in told if type(size) is int and 0 < size < 1 << 50 and rate)
            if sizes:
                yield Exchange(scope, pattern, sizes[:_MOST_SIZES], positive(one.get("latency_seconds")))


def network_checks(record: Record) -> tuple[NetworkCheck, ...]:
    """Of each scope that was measured; none of a rank alone."""
    found = [_check(record, one) for one in exchanges(record) if one.pattern == "all_reduce"]
    return tuple(found[: len(SCOPES)])


def _check(record: Record, one: Exchange) -> NetworkCheck:
    expected = _expected(record, one.scope)
    told = ""
    if expected is not None and one.most < expected.slow * expected.rate:
        look = _look_within(record) if one.scope == "within_node" else _look_across(record)
        told = (
            f"is slow: all-reduce has a bus bandwidth of {number(one.most / 1e9, 2)} GB/s, "
            f"{percent(one.most / expected.rate)} % of the {number(expected.rate / 1e9)} GB/s of {expected.of}; {look}"
        )
    elif one.scope == "across_nodes" and record.run.device == "cuda" and _adapter_rates(record):
        switched_off = _switched_off(record)
        told = f"is not the one that the nodes have: {switched_off}" if switched_off else ""
    return NetworkCheck(
        scope=one.scope,
        sizes=one.sizes,
        bus_bytes_per_second=one.most,
        expected_bytes_per_second=expected.rate if expected else None,
        expected_of=expected.of if expected else None,
        warning=printable(f"the network {SCOPES[one.scope]} {told}") if told else None,
    )


class Expected(NamedTuple):
    """``rate``: bytes per second. ``slow``: the share of them below which a network is slow."""

    rate: float
    of: str
    slow: float


def _expected(record: Record, scope: str) -> Expected | None:
    """What an all-reduce of a run on GPUs should reach, if anything tells."""
    expect = {"within_node": _expected_within, "across_nodes": _expected_across}.get(scope)
    return expect(record) if expect and record.run.device == "cuda" else None


def _hardware(record: Record) -> "Hardware | None":
    """What the catalogue has for the run's accelerator."""
    name = inner(record.environment.worker, "device", "name")
    device = find_device(name) if isinstance(name, str) else None
    if device is None:
        return None
    from suite.planner.hardware import hardware_of  # which a CPU does without

    return hardware_of(device)


def _expected_within(record: Record) -> Expected | None:
    """NVLink or its like as far as it leads to the run's devices, else the slots; None where that is not known."""
    hardware = _hardware(record)
    device = find_device(hardware.name) if hardware else None
    if hardware is None or device is None:
        return None
    if not device.link_bytes_per_second or device.link_devices is not None:
        return Expected(min([hardware.link, *_slots(record)]), "a PCIe slot, one direction", _SLOW_PCIE)
    ups = [[_whole(inner(gpu, "nvlinks", name)) for name in ("to_ranks", "active")] for gpu in gpus(record)]
    # Links to the run's devices over all that are up; those that are down are missed, not forgiven.
    shares = [to_ranks / active for to_ranks, active in ups if active and to_ranks and to_ranks <= active]
    # Where links lead from device to device, a part of a node's devices has a part of each one's links.
    is_whole = record.run.layout.devices_per_node == hardware.node_devices
    if not shares and not is_whole:
        return None
    return Expected(hardware.link * min(shares, default=1.0), "the links, one direction", _SLOW)


def _expected_across(record: Record) -> Expected | None:
    """A device's share of its node's active adapters, at most what its maker's systems have."""
    hardware = _hardware(record)
    adapters = sum(_adapter_rates(record)) / 8 / record.run.layout.devices_per_node
    if adapters and (hardware is None or adapters < hardware.network):
        return Expected(adapters, "a device's share of its node's adapters", _SLOW)
    return Expected(hardware.network, "a device in its maker's own systems", _SLOW) if hardware else None


def _look_within(record: Record) -> str:
    for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
        if _is_on(record, name):
            return f"{name} is set"
    for gpu in gpus(record):
        links, active = (_whole(inner(gpu, "nvlinks", name)) for name in ("links", "active"))
        if links and active is not None and active < links:
            return f"{active} of {links} NVLinks of a device are up"
        width, most = (_whole(inner(gpu, "pcie", name)) for name in ("width", "max_width"))
        if width and most and width < most:
            return f"a device has {width} of {most} PCIe lanes"
    return "nvidia-smi topo -m shows the links, NCCL_DEBUG=INFO which of them NCCL takes"


def _look_across(record: Record) -> str:
    adapters, switched_off = len(_adapter_rates(record)), _switched_off(record)
    if switched_off or not adapters:
        return switched_off or "the ranks see no active InfiniBand or RoCE adapter, so messages go over TCP"
    missing = inner(record.environment.worker, "topology", "nvidia_peermem") is False
    return (
        f"{counted(adapters, 'adapter')} of the first node {'is' if adapters == 1 else 'are'} active: "
        "NCCL_DEBUG=INFO shows whether NCCL takes them (NET/IB) or TCP (NET/Socket)"
        + ("; nvidia_peermem is not loaded" if missing else "")
    )


def _switched_off(record: Record) -> str:
    """The variable that keeps NCCL from InfiniBand and RoCE; empty for none."""
    if _is_on(record, "NCCL_IB_DISABLE"):
        return "NCCL_IB_DISABLE is set, so messages go over TCP"
    network = inner(record.environment.worker, "variables", "NCCL_NET")
    is_socket = isinstance(network, str) and network.lower() == "socket"
    return "NCCL_NET=Socket is set, so messages go over TCP" if is_socket else ""


def _is_on(record: Record, variable: str) -> bool:
    value = inner(record.environment.worker, "variables", variable)
    return isinstance(value, str) and value.strip() not in ("", "0")


def _slots(record: Record) -> list[float]:
    """What each device's slot carries. Its generation at one moment may be low, because the device idled."""
    known = [
        [_whole(inner(gpu, "pcie", name)) or 0 for name in ("max_generation", "max_width")] for gpu in gpus(record)
    ]
    return [
        _PCIE_LANE[generation] * lanes for generation, lanes in known if generation in _PCIE_LANE and 0 < lanes <= 32
    ]


def _adapter_rates(record: Record) -> list[float]:
    """Bits per second of each port that is up."""
    rates = (positive(one.get("bits_per_second")) for one in active_adapters(record))
    return [rate for rate in rates if rate is not None]


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 20 else None


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{number(size_bytes / unit, 1)} {name}"
    return f"{size_bytes} bytes"
