"""Which rows of a plan take turns by iteration, with which others, and why the rest do not."""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from suite.backends.base import BackendDriver
from suite.backends.registry import seat_of
from suite.conduct.planning.prediction import can_be_predicted
from suite.launch.outcome import Launcher
from suite.report.formatting.numbers import counted, gib
from suite.spec.base import Frozen, UsageError
from suite.spec.layout import Layout
from suite.spec.manifest import Limits, Manifest, Measure
from suite.spec.resolve import resolve_work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.memory import memory_floor


class Seat(Frozen):
    """A row's group, and its block where not all of a group fit at once; null for the row that is in all of them,
    through which rows of two blocks are compared."""

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

    @property
    def driver(self) -> BackendDriver:
        return seat_of(self.backend)[0]

    def predicted(self, device: str | None) -> dict[str, Any] | None:
        """What the planner says of such a run on a device; ``None`` where nothing is known."""
        if device is None or not can_be_predicted(self.measure):
            return None
        from suite.planner.predict_manifest import predict_layout

        work = resolve_work(self.size, self.workload, self.layout, self.measure.seed)
        return predict_layout(self.size, self.workload, work, self.layout, self.driver.name, device)


#: Counted iterations of a run in turns that nobody chose: beside its start they cost little.
ITERATIONS = 40
#: Of the memory of a host or of a GPU, what rows may take together.
MOST_OF_MEMORY = 0.8
#: Of a rank: Python and its stack, and on a GPU what CUDA keeps there.
STACK_BYTES = 1 << 30
#: What torch's allocator holds of a GPU over what it uses: a cache that grows by copies leaves holes, which a row alone
#: gets back and rows beside it do not. The largest of docs/results/h200.
KEPT = 1.65
_ASSUMED = f"twice the floor of each where nothing is predicted, 1 GiB a rank, and on a GPU {KEPT} times that"


class Turning(Frozen):
    """How rows shall take turns, and what this host has for it. ``asked``: null leaves it to what is possible."""

    asked: Literal["iterations", "rounds"] | None = None
    length: int | None = Field(default=None, description="iterations of a turn; null: as their time decides")
    mixed: bool = Field(default=False, description="whether trainers take turns with engines too")
    refused: str | None = Field(default=None, description="why no row here can take turns by iteration")
    device_name: str | None = None
    room_bytes: int | None = Field(default=None, description="of the host, or of each GPU; null: not known")


ROUNDS = Turning(asked="rounds")


def take_seats(
    points: list[Point], turning: Turning, chooses_iterations: bool
) -> tuple[list[Point], list[str], tuple[str, ...]]:
    """The points, those in turns with a seat; what was assumed of memory; and why others, that might, have none.

    A group is all that are of one size and do one kind of work: those that are compared, engines with engines unless
    ``mixed``, and a backend on several numbers of ranks, because scaling efficiency is a ratio too.
    ``chooses_iterations``: nobody else did. Raises UsageError where turns by iteration were asked for and are possible
    nowhere."""
    if turning.asked == "rounds":
        return points, [], ()
    groups: dict[Hashable, list[Point]] = defaultdict(list)
    reasons: dict[str, None] = {}
    for point in points:
        reason = turning.refused or _why_alone(point)
        if reason is None:
            kind = None if turning.mixed else point.driver.kind
            groups[point.size.name, point.workload.name, point.workload.algorithm.text(), kind].append(point)
        else:
            reasons[reason] = None
    seats: dict[int, Seat] = {}
    assumed = []
    for number, members in enumerate(groups.values()):
        needs = {id(point): _resident_bytes(point, turning.device_name) for point in members}
        blocks = _blocks(members, needs, turning.room_bytes)
        if blocks:
            seats[id(members[0])] = Seat(group=number, block=None, blocks=len(blocks))
            assumed.append(_told(members[0], blocks, needs, turning.room_bytes))
        for place, block in enumerate(blocks):
            seats.update({id(point): Seat(group=number, block=place, blocks=len(blocks)) for point in block})
        for point in members:
            if id(point) not in seats:
                reasons[_why_not(point, len(members), needs[id(point)], turning.room_bytes)] = None
    if turning.asked == "iterations" and not seats:
        raise UsageError(f"--turns iterations: {'; '.join(reasons)}; --turns rounds runs one after the other")
    changes = {"turns": "iterations", "turn_length": turning.length}
    own = {"iterations": ITERATIONS} if chooses_iterations else {}
    seated = []
    for point in points:
        measure = point.measure.model_copy(update={**changes, **own})
        update = {"seat": seats[id(point)], "measure": measure} if id(point) in seats else {}
        seated.append(point.model_copy(update=update))
    return seated, assumed, tuple(reasons) if len(points) > 1 else ()


def _why_alone(point: Point) -> str | None:
    if point.measure.profile:
        return "--profile adds an iteration that counts nowhere"
    if point.layout.placement == "split":
        return f"{point.backend}: its two sides work at the same time, on different iterations"
    if point.driver.takes_turns:
        return None
    return f"{point.backend}: its work is done by processes of its own, which go on while its ranks wait"


def _why_not(point: Point, members: int, needed: float, room_bytes: int | None) -> str:
    if members == 1:
        return f"{point.size.name} is one row, with nobody to take turns with"
    return (
        f"{point.backend} {point.size.name} should need {gib(needed)} GiB ({_ASSUMED}), for which there is no room "
        f"beside the first of its rows in {MOST_OF_MEMORY:.0%} of {gib(room_bytes)} GiB"
    )


def _told(first: Point, blocks: Sequence[Sequence[Point]], needs: Mapping[int, float], room_bytes: int | None) -> str:
    most = needs[id(first)] + max(sum(needs[id(point)] for point in block) for block in blocks)
    split = f", in {len(blocks)} blocks that share the first" if len(blocks) > 1 else ""
    room = "" if room_bytes is None else f" of {gib(room_bytes)}"
    rows = counted(1 + sum(map(len, blocks)), "row")
    return (
        f"{rows} of {first.size.name} take turns by iteration{split}: at once they should need {gib(most)}{room} GiB "
        f"({_ASSUMED})"
    )


def _resident_bytes(point: Point, device_name: str | None) -> float:
    """Of the host on a CPU; of the fullest device on a GPU, with what the allocator keeps there from other rows."""
    predicted = point.predicted(device_name)
    if predicted is not None:
        return KEPT * int(predicted["memory_bytes"])
    size, workload, layout, measure = point.size, point.workload, point.layout, point.measure
    work = resolve_work(size, workload, layout, measure.seed)
    rank = STACK_BYTES + 2.0 * memory_floor(size, workload, work, layout, measure.precision).bytes
    return rank * layout.ranks if measure.device == "cpu" else KEPT * rank


def _blocks(members: Sequence[Point], needs: Mapping[int, float], room_bytes: int | None) -> list[list[Point]]:
    """Who fits beside the first of the members at once; those that do not even alone are in none."""
    first, *others = members
    room = math.inf if room_bytes is None else MOST_OF_MEMORY * room_bytes - needs[id(first)]
    blocks: list[list[Point]] = []
    left = 0.0
    for point in others:
        if needs[id(point)] > room:
            continue
        if not blocks or needs[id(point)] > left:
            blocks.append([])
            left = room
        blocks[-1].append(point)
        left -= needs[id(point)]
    return blocks


def is_remote(launcher: Launcher) -> bool:
    """Whether runs are started on another host, at which nobody can look from here."""
    runtime = getattr(launcher, "runtime", None)  # of containers
    return runtime is not None and runtime.facts.remote


def turns_refused(launcher: Launcher) -> str | None:
    """Why rows cannot take turns where this launcher starts them; null where they can."""
    return "the container runtime is on another host" if is_remote(launcher) else None
