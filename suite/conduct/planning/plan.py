"""From a request to the manifests of every run, in the order in which they are run."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from suite.backends.base import BackendDriver, generation_errors, stack_of, unknown_work
from suite.backends.registry import seat_of
from suite.conduct.planning.prediction import can_be_predicted, counted_iterations, limits_for
from suite.conduct.planning.request import Request, Skipped
from suite.conduct.planning.turns import ROUNDS, Point, Seat, Turning, take_seats
from suite.spec.base import Frozen, UsageError, digest
from suite.spec.fields import chosen, declared, is_default
from suite.spec.layout import Layout, LayoutChoices, LayoutRequest
from suite.spec.manifest import Backend, Manifest, work_hash
from suite.spec.resolve import layout_errors, make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload


class Plan(Frozen):
    """All runs of a request in running order, what cannot be run, and settings that some backend does not know.
    ``seats``: of the rows that take turns by iteration, by their hash; ``in_rounds``: why others do not."""

    id: str
    manifests: tuple[Manifest, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    seats: dict[str, Seat] = Field(default={})
    in_rounds: tuple[str, ...] = ()

    @property
    def firsts(self) -> tuple[Manifest, ...]:
        """The first repeat of every row, in order."""
        return tuple(manifest for manifest in self.manifests if manifest.run.repeat == 1)


def make_joint_plan(
    requests: Sequence[Request],
    stacks: Mapping[str, Mapping[str, str]],
    images: Mapping[str, str | None] = MappingProxyType({}),
    manner: Sequence[str] = (),
    code: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    turning: Turning = ROUNDS,
) -> Plan:
    """One plan of requests that differ in sizes, ranks, layout and workload only, as those of a preset.

    ``stacks``: backend, perhaps ``deepspeed@before``, -> package -> version in the stack's interpreter, ``code``:
    -> digest, as far as it is known; ``images`` and ``manner``: as for ``make_manifest``. Raises UsageError, with every
    reason, when a backend is left without a single possible run.
    """
    request = requests[0]
    drivers = {name: seat_of(name)[0] for name in request.backends}
    found = [
        one
        for each in requests
        for size, ranks, scaling in product(each.sizes, each.ranks, each.scalings)
        for name in drivers
        for one in _resolved(each, name, stacks.get(name, {}), size, ranks, scaling)
    ]
    points = [one for one in found if isinstance(one, Point)]
    skipped = [one for one in found if isinstance(one, Skipped)]
    notes = [one for one in found if isinstance(one, str)]
    for name in drivers:
        if not any(point.backend == name for point in points):
            reasons = sorted({entry.reason for entry in skipped if entry.backend == name})
            raise UsageError(f"{name} can run nothing of this: {'; '.join(reasons)}")
    bodies = [each.model_dump(mode="json") for each in requests]
    identity = digest(bodies[0] if len(bodies) == 1 else bodies)[:12]
    notes += [note for each in requests for note in _notes(each, [*drivers.values()])]
    unique = {digest(point.model_dump(mode="json")): point for point in points}
    seated, assumed, in_rounds = take_seats([*unique.values()], turning, "iterations" in request.left_open)
    notes += [*assumed, *(f"rounds, not turns by iteration: {reason}" for reason in in_rounds)]
    ordered = _interleaved(_allowed(request, seated), request.repeats)
    bases = {drivers[name].name: seat_of(name)[1] for name in reversed(drivers)}
    manifests = []
    for point, repeat in ordered:
        driver, environment = seat_of(point.backend)
        parts: dict[str, Any] = {name: part for name, part in point if name not in ("backend", "seat")}
        manifest = make_manifest(
            **parts,
            plan=identity,
            repeat=repeat,
            backend=Backend(name=driver.name, kind=driver.kind, environment=environment),
            stack=stack_of(driver, point.layout, stacks[point.backend]),
            stack_code=stack_of(driver, point.layout, code.get(point.backend, {})),
            track=request.track,
            image=images.get(point.backend),
            manner=manner,
            stopping=request.stopping,
            base=None if bases[driver.name] == environment else bases[driver.name],
        )
        manifests.append(manifest)
    seats = {manifest.hash: point.seat for manifest, (point, _) in zip(manifests, ordered, strict=True) if point.seat}
    return Plan(
        id=identity,
        manifests=tuple(manifests),
        skipped=tuple(skipped),
        notes=tuple(dict.fromkeys(notes)),
        seats=seats,
        in_rounds=in_rounds,
    )


def _resolved(
    request: Request, name: str, versions: Mapping[str, str], size: Shape, ranks: int, scaling: str
) -> Iterator[Point | Skipped | str]:
    """What a backend makes of one point of the cross product: its points, those it cannot run, and notes."""
    driver, _ = seat_of(name)
    # one rank does the same work under either scaling, so both tables share the run
    weak = ranks == 1 or scaling == "weak"
    workload = request.workload.model_copy(update={"scaling": "weak" if weak else "strong"})
    for wanted in _layout_requests(request, driver, ranks):
        layout, errors = _layout(request, driver, versions, size, workload, wanted)
        if errors and request.preset:
            # the preset's own layout is for its own number of devices: here the stack chooses
            free = LayoutRequest(**wanted.model_dump(include={"nodes", "devices_per_node", "device_memory_bytes"}))
            layout, others = _layout(request, driver, versions, size, workload, free)
            errors = errors if others else []
        if layout is None or errors:
            yield Skipped(backend=name, size=size.name, ranks=ranks, reason="; ".join(errors))
            continue
        if request.preset is not None or request.layout == LayoutChoices():  # nobody chose it
            first, layout = layout, _expected_to_fit(request, driver, size, workload, layout)
            if layout != first and request.preset:
                spare = " with room to spare" if request.wants_spare else ""
                yield (
                    f"{name} {size.name}: {layout.label()} in the place of the preset's {first.label()}, which is not "
                    f"expected to fit{spare}"
                )
        own: dict[str, Any] = {"measure": request.measure, "limits": request.limits}
        yield Point(backend=name, size=size, workload=workload, layout=layout, **own)


def _layout(
    request: Request,
    driver: BackendDriver,
    versions: Mapping[str, str],
    size: Shape,
    workload: Workload,
    wanted: LayoutRequest,
) -> tuple[Layout | None, list[str]]:
    """The layout that a stack makes of a request, and why it cannot run it."""
    try:
        layout = driver.layout(size, workload, wanted)
        errors = unknown_work(driver, workload) + layout_errors(size, workload, layout)
        errors += driver.errors(size, workload, layout, request.measure)
        errors += generation_errors(size, layout, request.measure)
        # the iteration that is traced is the suite's own, on ranks that all do the same
        if request.measure.profile and driver.kind == "trainer":
            errors.append(f"--profile traces the suite's own iteration, not that of {driver.name}; leave it out")
        elif request.measure.profile and layout.placement == "split":
            errors.append("--profile traces ranks that all do the same; leave it out with --placement split")
        return layout, errors + driver.versions_errors(workload, layout, versions)
    except ValidationError as error:
        return None, [entry["msg"].removeprefix("Value error, ") for entry in error.errors()]
    except ValueError as error:
        return None, [str(error)]


def _expected_to_fit(
    request: Request, driver: BackendDriver, size: Shape, workload: Workload, layout: Layout
) -> Layout:
    """The first choice, or the nearest that the planner expects to fit where that one does not."""
    measure, memory = request.measure, request.device_memory_bytes
    if memory is None or not can_be_predicted(measure):
        return layout
    from suite.planner.predict_manifest import fitting_layouts

    fitting = fitting_layouts(size, workload, layout, driver.name, memory, request.wants_spare)
    usable = (each for each in fitting if not layout_errors(size, workload, each))
    return next((each for each in usable if not driver.errors(size, workload, each, measure)), layout)


def _allowed(request: Request, points: list[Point]) -> list[Point]:
    """The points with what was left open, by the time that they are expected to take."""
    if not request.left_open:
        return points
    paces: dict[str, list[float]] = defaultdict(list)
    found = []
    for each in points:
        work = work_hash(each.size, each.workload, each.layout.ranks, each.measure.seed)
        predicted = each.predicted(request.device_name)
        paces[work] += [predicted["iteration_seconds"]] if predicted else []
        found.append((each, work, predicted))
    allowed = []
    for point, work, predicted in found:
        iterations = counted_iterations(point.measure, request.left_open, paces[work])
        measure = point.measure.model_copy(update={"iterations": iterations})
        limits = limits_for(measure, point.limits, request.left_open, predicted)
        allowed.append(point.model_copy(update={"measure": measure, "limits": limits}))
    return allowed


def _layout_requests(request: Request, driver: BackendDriver, ranks: int) -> Iterator[LayoutRequest]:
    if ranks % request.nodes:
        raise UsageError(f"{ranks} ranks do not divide over {request.nodes} nodes")
    known = {name: value for name, value in request.layout if name in driver.settings}
    crossed = {name: known.pop(name, None) or (None,) for name in chosen(Layout, "compare")}
    for values in product(*crossed.values()):
        yield LayoutRequest(
            nodes=request.nodes,
            devices_per_node=ranks // request.nodes,
            device_memory_bytes=request.device_memory_bytes,
            **dict(zip(crossed, values, strict=True)),
            **known,
        )


def _interleaved(points: list[Point], repeats: int) -> list[tuple[Point, int]]:
    """Repeat by repeat, every second one backwards (A B, B A, A B): drift of the machine meets both sides alike."""
    order = []
    for repeat in range(1, repeats + 1):
        for point in points if repeat % 2 else reversed(points):
            runs = point.seat.runs if point.seat else 1
            order += [(point, number) for number in range((repeat - 1) * runs + 1, repeat * runs + 1)]
    return order


def _notes(request: Request, drivers: list[BackendDriver]) -> Iterator[str]:
    rule = request.stopping
    if rule is not None:
        yield f"{rule.least} runs of each row are the least, {rule.most} the most: {rule.text()}"
    for name, fact in sorted(declared(LayoutChoices), key=lambda each: each[0]):
        if is_default(request.layout, name) or getattr(request.layout, name) is False:
            continue
        others = [driver.name for driver in drivers if name not in driver.settings]
        if len(others) == len(drivers):
            raise UsageError(f"{fact.option} means nothing to {' or '.join(others)}; leave it out")
        if others:
            yield f"{name.replace('_', ' ')} does not apply to {', '.join(others)} and was left out there"
