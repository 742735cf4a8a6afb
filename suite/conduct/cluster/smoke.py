"""A first run of minutes before a plan of days: the plan's own nodes, image, backend and work on a small size.

It finds what would end the long runs as well: an image that cannot be pulled, a GPU or an interface that is missing,
a stack that is not the manifest's, ranks that do not reach each other.
"""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from suite.conduct.planning.machine import Machine
from suite.conduct.planning.plan import make_joint_plan
from suite.conduct.planning.request import Request
from suite.launch.cluster.submission import SMOKE, submitted_ids
from suite.spec.base import UsageError
from suite.spec.catalogue import sizes
from suite.spec.manifest import Limits, Manifest
from suite.spec.resolve import as_repeat
from suite.spec.shape import Shape
from suite.theory.parameters import parameter_count

#: a size of so many parameters starts within minutes and is enough to keep every device busy
_FEWEST, _MOST = 100_000_000, 2_000_000_000
#: at most, and never longer than the longest run of the plan may take
_RUN_SECONDS, _SILENCE_SECONDS = 1800.0, 900.0


def smoke_root(root: Path) -> Path:
    """Results of first runs lie apart, where no report looks for them."""
    return root / SMOKE


def smoke_plan(manifests: Sequence[Manifest], machine: Machine, root: Path) -> tuple[Manifest, ...]:
    """The first runs before these, one for each backend, on as many nodes as the largest; each another repeat than
    those under ``root``, since what a cluster could yesterday says nothing. Raises UsageError."""
    by_backend: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        by_backend.setdefault(manifest.backend.name, []).append(manifest)
    taken = {*submitted_ids(smoke_root(root)), *(path.name for path in smoke_root(root).glob("*"))}
    found = []
    for own in by_backend.values():
        manifest = _small(own, machine)
        repeats = (as_repeat(manifest, repeat) for repeat in count(1))
        found.append(next(each for each in repeats if each.run.id not in taken))
    return tuple(found)


def _small(manifests: Sequence[Manifest], machine: Machine) -> Manifest:
    largest = max(manifests, key=lambda each: (each.layout.nodes, each.layout.ranks))
    smallest = min(manifests, key=lambda each: _parameters(each.size))
    run_seconds = min(_RUN_SECONDS, max(each.limits.run_seconds for each in manifests))
    backends, refusals = (largest.backend.name,), []
    stacks, images = machine.stacks(backends), machine.images(backends)
    for size in _candidates(smallest.size, largest.measure.device == "cuda"):
        request = Request(
            backends=backends,
            sizes=(size,),
            ranks=(largest.layout.ranks,),
            nodes=largest.layout.nodes,
            workload=smallest.workload,
            measure=largest.measure.model_copy(update={"warmup": 1, "iterations": 1}),
            limits=Limits(run_seconds=run_seconds, silence_seconds=min(_SILENCE_SECONDS, run_seconds)),
            repeats=1,
            track=largest.track,
            device_memory_bytes=machine.device_memory_bytes,
        )
        try:
            return make_joint_plan((request,), stacks, images).manifests[0]
        except UsageError as error:
            refusals.append(str(error))
    raise UsageError(f"--smoke: no small size can be run first; {refusals[0]}")


def _candidates(smallest: Shape, on_gpus: bool) -> list[Shape]:
    """The smallest size of the plan where that is small, else the smallest known ones of its family before it."""
    if not on_gpus or _parameters(smallest) <= _MOST:
        return [smallest]
    known = [size for size in sizes().values() if size.architecture == smallest.architecture]
    small = [size for size in known if _FEWEST <= _parameters(size) <= _MOST]
    return [*sorted(small, key=_parameters), smallest]


def _parameters(size: Shape) -> int:
    return parameter_count(size).total
