"""What a manifest of somebody else would have done here, shown before anything of it is started."""

from __future__ import annotations

from pathlib import Path

from suite.bundle.store import Bundle, DamagedBundle
from suite.conduct.running.provenance import is_from_here
from suite.report.formatting.numbers import counted, gib, span
from suite.spec.base import printable
from suite.spec.manifest import Manifest
from suite.theory.memory import generating_floor, memory_floor
from suite.theory.parameters import parameter_count

_LONGEST_LINE = 300


def recorded_here(manifest: Manifest, path: Path) -> bool:
    """Whether the bundle at ``path``, or beside a manifest.json there, proves that this user recorded it here."""
    folder = path if path.is_dir() else path.parent
    if folder != path and path.name != "manifest.json":
        return False
    try:
        return is_from_here(manifest, Bundle(folder).environment())
    except DamagedBundle:
        return False


def what_it_asks(manifest: Manifest, runs: str) -> list[str]:
    """A few lines for people: the work, what it needs at the least, and how long it may take."""
    size, layout, measure, limits = manifest.size, manifest.layout, manifest.measure, manifest.limits
    work = (size, manifest.workload, manifest.work, layout, measure.precision)
    bytes_needed = memory_floor(*work).bytes * layout.training_ranks + generating_floor(*work) * layout.generation_ranks
    stack = ", ".join(f"{package} {version}" for package, version in sorted(manifest.stack.items()))
    told = {
        "run": f"{manifest.run.id}, {runs}",
        "model": f"{size.name}, {size.architecture}, {parameter_count(size).total / 1e9:,.3f} billion parameters",
        "work": f"{manifest.workload.name}: {counted(manifest.work.global_rollouts, 'sample')} of up to "
        f"{manifest.workload.sequence_tokens} tokens, {measure.warmup} + {manifest.iterations} iterations",
        "ranks": f"{layout.ranks} on {counted(layout.nodes, 'node')} ({layout.label()}), {measure.device}, "
        f"{measure.precision}, {counted(measure.threads_per_rank, 'thread')} each",
        "memory": f"at least {gib(round(bytes_needed))} GiB in all",
        "limits": f"{span(limits.run_seconds)} a run, {span(limits.silence_seconds)} without a sign of life",
        "stack": f"{manifest.backend.name} on {stack or 'whatever is here'}",
    }
    return [f"{name + ':':<8} {printable(text[:_LONGEST_LINE])}" for name, text in told.items()]
