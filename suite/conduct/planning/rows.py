"""A row of the report to be, and its place among those that take turns by iteration."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType

from pydantic import Field

from suite.spec.base import Frozen
from suite.spec.layout import Layout
from suite.spec.manifest import Limits, Manifest, Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload


class Seat(Frozen):
    """A row's group, and its block where not all of a group fit at once.

    ``block``: null for the row that is in all of them, through which rows of two blocks are compared.
    """

    group: int
    block: int | None
    blocks: int

    @property
    def runs(self) -> int:
        """Of this row while each of the others gets one."""
        return self.blocks if self.block is None else 1

    def start(self, repeat: int) -> tuple[int, int, int]:
        """Equal of runs that are started together. ``repeat``: from 1."""
        number, block = divmod(repeat - 1, self.runs)
        return self.group, block if self.block is None else self.block, number


#: By the hash of the row.
Seats = Mapping[str, Seat]
NO_SEATS: Seats = MappingProxyType({})


def start_of(manifest: Manifest, seats: Seats) -> Hashable | None:
    """Equal of runs that are started together; null of one that is alone."""
    seat = seats.get(manifest.hash)
    return None if seat is None else seat.start(manifest.run.repeat)


class Point(Frozen):
    """Everything but the repeat. ``backend``: with its environment, where it has one; ``seat``: null in rounds."""

    backend: str
    size: Shape
    workload: Workload
    layout: Layout
    measure: Measure
    limits: Limits
    seat: Seat | None = Field(default=None, exclude=True)
