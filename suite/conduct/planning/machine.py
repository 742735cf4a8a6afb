"""What this machine and its stack interpreter offer to a request, and which variables of its user are measured with."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from suite.backends.base import vllm_error
from suite.backends.registry import find_backend, seat_of
from suite.launch.idle import REQUIRE_IDLE
from suite.launch.probe import (
    VISIBLE,
    LocalDevice,
    container_id,
    hidden_by_variable,
    local_choice,
    local_devices,
    physical_cores,
    stack_code,
    stack_versions,
    usable_cpus,
    why_no_gpu,
)
from suite.spec.base import Frozen, UsageError
from suite.spec.manifest import Manifest
from suite.spec.redaction import public_variables
from suite.theory.memory import generating_floor, memory_floor

#: Threads of a rank on a GPU whose node cannot be examined: nodes with eight GPUs have at least twelve cores for each.
USUAL_THREADS = 8


class Machine(Frozen):
    """The resolved device of a session, and how much of it there is.

    ``threads_per_rank`` is the same for any number of ranks, so that they stay comparable: on GPUs a rank's share of
    the cores when every GPU has one. ``host_memory_bytes``: of the host that the ranks share, where it is known.
    """

    python: str
    pythons: dict[str, str] = Field(default={}, description="of backends, or backend@environment, with their own")
    device: Literal["cpu", "cuda"]
    max_ranks: int
    device_memory_bytes: int | None = None
    device_name: str | None = None
    threads_per_rank: int = Field(default=1, description="of a run that does not ask for another number")
    host_memory_bytes: int | None = None
    device_names: tuple[str, ...] = Field(default=(), description="UUIDs of the GPUs that runs may use")
    variables: dict[str, str] = Field(default={}, description="given to every rank, and part of what is measured")
    manner: tuple[str, ...] = Field(default=(), description="how ranks are started, where that is not the usual way")
    limited_by: str | None = Field(default=None, description="what was asked for that leaves so few of the GPUs")
    holder: ClassVar[str] = "interpreter with --python"
    #: whether the stacks can be asked what else is wrong; in an image each run does so anyway
    is_asked: ClassVar[bool] = True

    def require_room(self, ranks: int, force: bool, nodes: int = 1, threads: int = 1) -> None:
        """Raises UsageError for several nodes, more ranks than GPUs, and without ``force`` more threads than cores."""
        if nodes > 1:
            raise UsageError(
                f"{ranks} ranks on {nodes} nodes need the kubernetes or the slurm launcher; this one has one node "
                "(choose sizes that fit it with --size, or ask for fewer --ranks)"
            )
        if self.device == "cuda" and ranks > self.max_ranks:
            asked = f"{ranks} ranks need {ranks} GPUs" if ranks > 1 else "1 rank needs 1 GPU"
            left = f"{self.limited_by} leaves" if self.limited_by else "this machine has"
            raise UsageError(f"{asked}, {left} {self.max_ranks}")
        if self.device == "cpu" and ranks * threads > self.max_ranks and not force:
            asked = f"{ranks} {'rank' if ranks == 1 else 'ranks'}" + (f" of {threads} threads each" * (threads > 1))
            raise UsageError(
                f"{asked} on {self.max_ranks} cores would time the scheduler, not the backend; "
                f"ask for fewer {'ranks or --threads' if threads > 1 else 'ranks'}, or say --force"
            )

    def require_memory(self, manifests: Iterable[Manifest]) -> None:
        """Raises UsageError for a run on a CPU whose floor is more than the host has, which would go down."""
        if self.host_memory_bytes is None:
            return
        for manifest in (each for each in manifests if each.measure.device == "cpu"):
            needed = floor_bytes(manifest) / manifest.layout.nodes
            if needed > self.host_memory_bytes:
                raise UsageError(
                    f"{manifest.backend.name} {manifest.size.name} on {manifest.layout.ranks} ranks needs at least "
                    f"{needed / 2**30:,.1f} GiB of memory, this machine has {self.host_memory_bytes / 2**30:,.1f} GiB; "
                    "choose a smaller size"
                )

    def require_generation(self, manifests: Iterable[Manifest]) -> None:
        """Raises UsageError for a run that vLLM is to generate for where the stack has none, or another version."""
        for manifest in manifests:
            driver, where = find_backend(manifest.backend.name), self.where(manifest.backend.label)
            # a trainer without the setting brings an engine of its own
            if manifest.layout.generation == "vllm" and "generation" in driver.settings:
                error = vllm_error(self.device, manifest.stack, where)
                if error:
                    raise UsageError(error)

    def versions(self, backend: str) -> dict[str, str | None]:
        """Version of each package of a backend in its interpreter, of those for some layouts where they are there."""
        driver, _ = seat_of(backend)
        found = stack_versions(self.python_of(backend), driver.packages + driver.optional_packages)
        return without_missing(driver.optional_packages, found)

    def code(self, backends: Iterable[str]) -> dict[str, dict[str, str]]:
        """Digest of the code of each backend's packages; none in an image. An interpreter is asked once for all."""
        packages = {name: (driver := seat_of(name)[0]).packages + driver.optional_packages for name in backends}
        wanted: dict[str, dict[str, None]] = defaultdict(dict)
        for name, own in packages.items():
            wanted[self.python_of(name)] |= dict.fromkeys(own)
        found = {python: stack_code(python, tuple(each)) for python, each in wanted.items()}
        code = {name: found[self.python_of(name)] for name in packages}
        return {name: {one: code[name][one] for one in own if one in code[name]} for name, own in packages.items()}

    def images(self, backends: Iterable[str]) -> dict[str, str | None]:
        """What names the image that a backend's runs are in; ``None`` on a bare host."""
        return dict.fromkeys(backends, os.environ.get("SUITE_IMAGE"))

    def where(self, backend: str) -> str:
        """What holds a backend's stack, in words for a message."""
        return self.python_of(backend)

    def lacking(self, backend: str, missing: Sequence[str]) -> str:
        """That packages are missing from a backend's stack, and what to do."""
        return (
            f"{backend} needs {', '.join(missing)}, which {self.where(backend)} does not have; install it there or "
            f"name another {self.holder} (`suite doctor --install {seat_of(backend)[0].name}` prints how)"
        )

    def python_of(self, backend: str) -> str:
        """The interpreter of a backend's ranks."""
        return self.pythons.get(backend, self.python)

    def stacks(self, backends: Iterable[str], as_found: bool = False) -> dict[str, dict[str, str]]:
        """Versions of each backend's packages. Raises UsageError when one is missing or cannot be measured, but for a
        plan that is only looked at, which takes them ``as_found``."""
        found = {}
        for name in backends:
            versions, (driver, _) = self.versions(name), seat_of(name)
            missing = [package for package, version in versions.items() if version is None]
            if missing and not as_found:
                raise UsageError(self.lacking(name, missing))
            errors = [] if as_found else driver.wrong_versions(versions)
            errors += driver.stack_errors(self.python_of(name)) if self.is_asked and not as_found else []
            if errors:
                raise UsageError(f"{name} cannot run on the stack of {self.where(name)}: {'; '.join(errors)}")
            found[name] = {package: version for package, version in versions.items() if version is not None}
        return found

    def lacks(self, ranks: int, nodes: int, backends: Iterable[str]) -> tuple[str, ...]:
        """What a run would need that is not here, one line each: for a plan that is only looked at."""
        needs: list[Callable[[], object]] = [partial(self.require_room, ranks, True, nodes)]
        needs += [partial(self.stacks, (name,)) for name in backends]
        lines = [] if self.max_ranks else ["no NVIDIA driver shows a GPU: the plan knows no device memory"]
        for need in needs:
            try:
                need()
            except UsageError as error:
                lines.append(str(error))
        return tuple(lines)


def require_other_stacks(stacks: Mapping[str, Mapping[str, str]], code: Mapping[str, Mapping[str, str]]) -> None:
    """Raises UsageError for two environments of a backend that hold one stack, by versions and digests of code."""
    seen: dict[tuple[str, str], str] = {}
    for name, versions in stacks.items():
        backend, is_one_of_several, _ = name.partition("@")
        stack = repr(sorted(versions.items())) + repr(sorted(code.get(name, {}).items()))
        other = seen.setdefault((backend, stack), name)
        if is_one_of_several and other != name:
            raise UsageError(
                f"{other} and {name} are the same stack, to the digest of its code, so there is no change to measure: "
                "install it into one of them, or say --same-stack"
            )


def without_missing(optional: tuple[str, ...], versions: dict[str, str | None]) -> dict[str, str | None]:
    """The versions without those packages of ``optional`` that are not there."""
    return {package: version for package, version in versions.items() if version is not None or package not in optional}


def floor_bytes(manifest: Manifest) -> int:
    """That all ranks of a run need together at the least."""
    layout = manifest.layout
    work = (manifest.size, manifest.workload, manifest.work, layout, manifest.measure.precision)
    return memory_floor(*work).bytes * layout.training_ranks + generating_floor(*work) * layout.generation_ranks


def smallest_memory(gpus: Iterable[LocalDevice]) -> int | None:
    """Bytes of the smallest device; ``None`` where one does not tell, as those that share the host's memory."""
    return min((gpu.memory_bytes or 0 for gpu in gpus), default=0) or None


def offered_by(gpus: Sequence[LocalDevice], cores: int | None, sharing: int) -> dict[str, Any]:
    """What these offer as fields of a ``Machine``. ``cores``: of the node, where known, for ``sharing`` GPUs."""
    return {
        "device": "cuda",
        "max_ranks": len(gpus),
        "device_memory_bytes": smallest_memory(gpus),
        "device_name": gpus[0].name if len({gpu.name for gpu in gpus}) == 1 else None,
        "device_names": tuple(gpu.uuid for gpu in gpus),
        "threads_per_rank": USUAL_THREADS if cores is None or sharing == 0 else max(1, cores // sharing),
    }


def look_at_machine(python: str, device: str, planning: bool = False, gpu_ids: tuple[str, ...] = ()) -> Machine:
    """``auto`` takes CUDA where a driver shows a GPU; ``gpu_ids`` choose among those that CUDA_VISIBLE_DEVICES leaves.
    Raises UsageError when it is not there, unless for ``planning``: the machine has no place then."""
    import psutil

    present = local_devices() if device != "cpu" else ()
    gpus = local_choice(present, gpu_ids, os.environ)
    limit = f"{VISIBLE}={os.environ[VISIBLE]}" if VISIBLE in os.environ else None
    limit = "--gpu-ids " + ",".join(gpu_ids) if gpu_ids else limit
    if gpus or (planning and device == "cuda"):
        # all of their kind share the host's cores, whoever uses the others
        kinds = {gpu.name for gpu in gpus}
        alike = max(len(gpus), sum(gpu.name in kinds for gpu in present))
        return Machine(
            python=python,
            host_memory_bytes=psutil.virtual_memory().total if gpus else None,
            limited_by=limit if len(gpus) < len(present) else None,
            **offered_by(gpus, physical_cores(usable_cpus()), alike),
        )
    if device == "cuda":
        hidden = hidden_by_variable(present, os.environ) if present else None
        if hidden is not None:
            raise UsageError(f"--device cuda: this host has {len(present)} GPUs, but {hidden}; unset it, or name some")
        raise UsageError(f"--device cuda: {why_no_gpu(container_id() is not None)}")
    memory = psutil.virtual_memory().total
    return Machine(python=python, device="cpu", max_ranks=len(usable_cpus()), host_memory_bytes=memory)


#: variable -> the option that sets what the manifest says of it
_OPTIONS = {"OMP_NUM_THREADS": "--threads", "CUDA_VISIBLE_DEVICES": "--gpu-ids", "NVIDIA_VISIBLE_DEVICES": "--gpu-ids"}


def measured_with(given: Mapping[str, str]) -> dict[str, str]:
    """Those that identify a run, without secrets. Raises UsageError for one that an option sets or that is no text."""
    for name, value in given.items():
        if name in _OPTIONS:
            raise UsageError(f"--env {name}: give it by {_OPTIONS[name]}, which the manifest and the plan know of")
        if (text := f"{name}={value}") != text.encode(errors="replace").decode():
            raise UsageError(f"--env {text!a} holds bytes that are no UTF-8, which a manifest cannot hold")
    public = public_variables(given)
    return {name: public[name] for name in sorted(public) if name not in REQUIRE_IDLE}


def require_same_variables(manifest: Manifest, found: Mapping[str, str]) -> None:
    """Raises UsageError where ranks would get other variables than the manifest was measured with; these are not taken
    from it, because variables can make a program load whatever its author likes."""
    wanted = manifest.measure.variables
    if dict(found) != wanted:
        options = " ".join(f"--env {name}={value}" for name, value in wanted.items()) or "no --env"
        raise UsageError(f"the manifest was measured with {options}: its ranks need that again, and no other variable")
