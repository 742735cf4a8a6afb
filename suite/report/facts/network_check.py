"""One run's network before a ladder: the bus bandwidth of its all-reduce by message size, and what it should be.

Bus bandwidth is bytes over the slowest rank's seconds times 2(n-1)/n of n ranks, as nccl-tests counts it (its
doc/PERFORMANCE.md), so that it compares with what one device's link carries in one direction.
"""

from __future__ import annotations

from pydantic import Field

from suite.bundle.facts import inner
from suite.bundle.record import Record
from suite.report.facts.network import SCOPES, Exchange, exchanges
from suite.report.facts.slow_network import expected_of, look_at
from suite.report.formatting.numbers import number, percent
from suite.spec.base import Frozen, printable

CONVENTION = "bytes / seconds x 2(n-1)/n, as nccl-tests counts"
_LONGEST_NAME = 20


class NetworkCheck(Frozen):
    """What the ranks of a run reached within a node, across nodes, or all together."""

    scope: str
    ranks: int | None = Field(description="that exchange messages with each other")
    transport: str = Field(description="the process group's backend: nccl, gloo")
    sizes: tuple[tuple[int, float], ...] = Field(description="bytes of a message, bus bytes per second")
    bus_bytes_per_second: float = Field(description="of the size that reached most")
    expected_bytes_per_second: float | None = Field(description="null: neither catalogue nor adapters tell")
    expected_of: str | None = Field(description="what has them")
    slow_below: float | None = Field(description="share of what is expected below which it is slow")
    look: str | None = Field(description="what to look at; null: it is not slow")

    def __str__(self) -> str:
        reached = f"{number(self.bus_bytes_per_second / 1e9)} GB/s"
        by_size = ", ".join(f"{_size(size)} {number(rate / 1e9)}" for size, rate in self.sizes)
        if self.expected_bytes_per_second is None:
            share = ", beside nothing that is expected of it"
        else:
            share = (
                f", {percent(self.bus_bytes_per_second / self.expected_bytes_per_second)} % of the "
                f"{number(self.expected_bytes_per_second / 1e9)} GB/s of {self.expected_of}"
            )
        who = "" if self.ranks is None else f"{self.ranks} ranks by "
        return f"network {SCOPES[self.scope]}, {who}{self.transport}: all-reduce {reached}{share} ({by_size})"

    def warning(self) -> str | None:
        if self.look is None or self.slow_below is None:
            return None
        return (
            f"the network {SCOPES[self.scope]} reaches less than {percent(self.slow_below)} % of what it should: "
            f"{self.look}"
        )


def network_checks(record: Record) -> tuple[NetworkCheck, ...]:
    """Of each scope that was measured; none of a rank alone."""
    found = [_check(record, one) for one in exchanges(record) if one.pattern == "all_reduce"]
    return tuple(found[: len(SCOPES)])


def _check(record: Record, one: Exchange) -> NetworkCheck:
    transport = inner(record.environment.worker, "network", "backend")
    most = max(rate for _, rate in one.sizes)
    expected = expected_of(record, one.scope)
    is_slow = expected is not None and most < expected.slow * expected.rate
    return NetworkCheck(
        scope=one.scope,
        ranks=one.ranks,
        transport=printable(transport)[:_LONGEST_NAME] if isinstance(transport, str) else "an unknown transport",
        sizes=one.sizes,
        bus_bytes_per_second=most,
        expected_bytes_per_second=expected.rate if expected else None,
        expected_of=expected.of if expected else None,
        slow_below=expected.slow if expected else None,
        look=printable(look_at(record, one.scope)) if is_slow else None,
    )


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{number(size_bytes / unit, 1)} {name}"
    return f"{size_bytes} bytes"
