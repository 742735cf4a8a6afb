"""From a request to the manifests of every run, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType

from pydantic import ValidationError

from suite.backends.base import BackendDriver, choice, unknown_work, versions_errors
from suite.backends.registry import find_backend
from suite.conduct.planning.prediction import layouts_to_prefer
from suite.conduct.planning.request import Request, Skipped
from suite.spec.base import Frozen, UsageError, digest
from suite.spec.fields import chosen, declared, is_default
from suite.spec.layout import Layout, LayoutChoices, LayoutRequest
from suite.spec.manifest import Manifest
from suite.spec.resolve import layout_errors, make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload

NO_IMAGES: Mapping[str, str | None] = MappingProxyType({})


class Plan(Frozen):
    """All runs of a request in running order, what cannot be run, and settings that some backend does not know."""

    id: str
    manifests: tuple[Manifest, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


class _Point(Frozen):
    """One row of the report to be: everything but the repeat."""

    backend: str
    size: Shape
    workload: Workload
    layout: Layout


def make_plan(
    request: Request, stacks: Mapping[str, Mapping[str, str]], images: Mapping[str, str | None] = NO_IMAGES
) -> Plan:
    """Resolve the cross product. ``stacks``: backend -> package -> version found in the stack's interpreter;
    ``images``: backend -> what names the image it runs in, if any.

    Raises UsageError when a backend is left without a single possible run, with every reason.
    """
    return make_joint_plan((request,), stacks, images)


def make_joint_plan(
    requests: Sequence[Request], stacks: Mapping[str, Mapping[str, str]], images: Mapping[str, str | None] = NO_IMAGES
) -> Plan:
    """One plan of several requests that differ in sizes, ranks, layout and workload only, as those of a preset.

    See ``make_plan``.
    """
    request = requests[0]
    drivers = [find_backend(name) for name in request.backends]
    points: list[_Point] = []
    skipped: list[Skipped] = []
    for each in requests:
        for size, ranks, scaling in product(each.sizes, each.ranks, each.scalings):
            for driver in drivers:
                _resolve_point(each, driver, stacks.get(driver.name, {}), size, ranks, scaling, points, skipped)
    for driver in drivers:
        _require_a_point(driver.name, points, skipped)
    bodies = [each.model_dump(mode="json") for each in requests]
    identity = digest(bodies[0] if len(bodies) == 1 else bodies)[:12]
    notes = dict.fromkeys(note for each in requests for note in _notes(each, drivers))
    ordered = _interleaved(_unique(points), request.repeats)
    manifests = tuple(
        make_manifest(
            plan=identity,
            repeat=repeat,
            backend=choice(find_backend(point.backend)),
            size=point.size,
            workload=point.workload,
            layout=point.layout,
            measure=request.measure,
            limits=request.limits,
            stack=dict(stacks[point.backend]),
            track=request.track,
            image=images.get(point.backend),
        )
        for point, repeat in ordered
    )
    return Plan(id=identity, manifests=manifests, skipped=tuple(skipped), notes=tuple(notes))


def _resolve_point(
    request: Request,
    driver: BackendDriver,
    versions: Mapping[str, str],
    size: Shape,
    ranks: int,
    scaling: str,
    points: list[_Point],
    skipped: list[Skipped],
) -> None:
    # one rank does the same work under either scaling, so both tables share the run
    weak = ranks == 1 or scaling == "weak"
    workload = request.workload.model_copy(update={"scaling": "weak" if weak else "strong"})
    for wanted in _layout_requests(request, driver, ranks):
        try:
            layout = driver.layout(size, workload, wanted)
            errors = unknown_work(driver, workload) + layout_errors(size, workload, layout)
            errors += driver.errors(size, workload, layout, request.measure)
            errors += versions_errors(driver, workload, versions)
        except ValidationError as error:
            errors = [entry["msg"].removeprefix("Value error, ") for entry in error.errors()]
        except ValueError as error:
            errors = [str(error)]
        if not errors and request.layout == LayoutChoices():
            layout = _expected_to_fit(request, driver, size, workload, layout)
        if errors:
            skipped.append(Skipped(backend=driver.name, size=size.name, ranks=ranks, reason="; ".join(errors)))
        else:
            points.append(_Point(backend=driver.name, size=size, workload=workload, layout=layout))


def _expected_to_fit(
    request: Request, driver: BackendDriver, size: Shape, workload: Workload, layout: Layout
) -> Layout:
    """The stack's own choice, or the nearest that the planner expects to fit where it expects that one not to."""
    measure = request.measure
    nearest = layouts_to_prefer(size, workload, layout, driver.name, measure, request.device_memory_bytes)
    for other in nearest:
        if not layout_errors(size, workload, other) + driver.errors(size, workload, other, measure):
            return other
    return layout


def _layout_requests(request: Request, driver: BackendDriver, ranks: int) -> Iterator[LayoutRequest]:
    if ranks % request.nodes:
        raise UsageError(f"{ranks} ranks do not divide over {request.nodes} nodes")
    choices = request.layout
    crossed = {
        name: getattr(choices, name) if name in driver.settings and getattr(choices, name) else (None,)
        for name in chosen(Layout, "compare")
    }
    plain = {
        name: getattr(choices, name)
        for name in (*chosen(Layout, "automatic"), *chosen(Layout, "switch"))
        if name in driver.settings
    }
    for values in product(*crossed.values()):
        yield LayoutRequest(
            nodes=request.nodes,
            devices_per_node=ranks // request.nodes,
            device_memory_bytes=request.device_memory_bytes,
            **dict(zip(crossed, values, strict=True)),
            **plain,
        )


def _require_a_point(backend: str, points: list[_Point], skipped: list[Skipped]) -> None:
    if not any(point.backend == backend for point in points):
        reasons = sorted({entry.reason for entry in skipped if entry.backend == backend})
        raise UsageError(f"{backend} can run nothing of this: {'; '.join(reasons)}")


def _unique(points: list[_Point]) -> list[_Point]:
    seen: dict[str, _Point] = {}
    for point in points:
        seen.setdefault(digest(point.model_dump(mode="json")), point)
    return list(seen.values())


def _interleaved(points: list[_Point], repeats: int) -> list[tuple[_Point, int]]:
    """Repeat by repeat, every second one backwards (A B, B A, A B): drift of the machine meets both sides alike."""
    order = []
    for repeat in range(1, repeats + 1):
        order += [(point, repeat) for point in (points if repeat % 2 else reversed(points))]
    return order


def _notes(request: Request, drivers: list[BackendDriver]) -> Iterator[str]:
    options = {name: fact.option for name, fact in declared(LayoutChoices)}
    asked = [name for name, value in request.layout if not is_default(request.layout, name) and value is not False]
    for name in sorted(asked):
        others = [driver.name for driver in drivers if name not in driver.settings]
        if len(others) == len(drivers):
            raise UsageError(f"{options[name]} means nothing to {' or '.join(others)}; leave it out")
        if others:
            yield f"{name.replace('_', ' ')} does not apply to {', '.join(others)} and was left out there"
