"""What this machine can run, and why not: the facts behind `suite doctor`, and how they are shown."""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Literal

import psutil
from pydantic import Field

from suite.backends.base import VLLM_PACKAGES, BackendDriver, vllm_error
from suite.backends.registry import Interpreters, backends, find_backend, own_backends
from suite.conduct.planning.machine import smallest_memory
from suite.launch.docker.connection import Runtime, connect
from suite.launch.docker.offers import access_of
from suite.launch.idle import busy_now
from suite.launch.probe import LocalDevice, ask_worker, hidden_by_variable, host_facts, local_devices, stack_versions
from suite.spec.base import Frozen, UsageError
from suite.spec.catalogue import find_device, find_size, find_workload, ladders
from suite.spec.device import Precision
from suite.spec.images import images
from suite.spec.layout import LayoutRequest
from suite.spec.resolve import resolve_work
from suite.spec.terminal import say
from suite.spec.version import suite_version
from suite.spec.width import unbroken, wrapped
from suite.theory.memory import memory_floor

FREE_DISK_BYTES = 1 << 30
#: for all that a run imports: tens of seconds on a machine with much to do
IMPORT_SECONDS = 180.0
_IMPORTS_AT_ONCE = 2


class Check(Frozen):
    """One thing looked at, what was found, and what to do when it is not well."""

    name: str
    state: Literal["ok", "warning", "missing"]
    found: str
    advice: str | None = None


class Fit(Frozen):
    """Whether the memory floor of a size fits one device of this machine; a floor, so ``fits`` is necessary only."""

    ladder: str
    size: str
    backend: str
    floor_bytes: int
    fits: bool | None = Field(description="null where the device does not report its memory")


class Diagnosis(Frozen):
    """All checks, and per size and backend whether one device can hold the floor."""

    python: str
    checks: tuple[Check, ...]
    devices: tuple[dict, ...]
    host: dict
    fits: tuple[Fit, ...]

    @property
    def able(self) -> bool:
        """Whether at least one backend can run here."""
        return any(check.name.startswith("backend ") and check.state == "ok" for check in self.checks)


def examine(asked: Interpreters, runs: Path) -> Diagnosis:
    """Look at interpreter, stacks, devices, memory, disk, container runtime. Raises UsageError for no interpreter."""
    gpus = local_devices()
    python = asked.usual or sys.executable
    checks = [Check(name="driver python", state="ok", found=".".join(map(str, sys.version_info[:3])))]
    device = "cuda" if gpus else "cpu"
    with ThreadPoolExecutor(_IMPORTS_AT_ONCE) as pool:
        drivers = backends().values()
        checks += pool.map(lambda driver: _backend_check(driver, asked.of(driver.name), device), drivers)
    versions = stack_versions(python, VLLM_PACKAGES)
    checks += [_check("generation vllm", _there(versions) or "no vLLM", vllm_error(device, versions, python))]
    memory = psutil.virtual_memory()
    free = f"{memory.available / 2**30:.1f} GiB free of {memory.total / 2**30:.1f} GiB"
    checks += [_gpu_check(gpus), _cores_check(), _check("memory", free), _disk_check(runs), runtime_check()]
    room = smallest_memory(gpus) if gpus else memory.total
    known = [(gpu, find_device(gpu.name)) for gpu in gpus]
    return Diagnosis(
        python=python,
        checks=tuple(checks),
        devices=tuple({**gpu.model_dump(mode="json"), "catalogue": one.name if one else None} for gpu, one in known),
        host=host_facts(),
        fits=tuple(_fits(room, "bf16" if gpus else "fp32")),
    )


def _backend_check(driver: BackendDriver, python: str, device: str) -> Check:
    versions = stack_versions(python, driver.packages)
    missing = [package for package, version in versions.items() if version is None]
    found = _there(versions) or "nothing"
    if driver.experimental:
        found += f" (experimental: {driver.experimental})"
    # a stack with an installation of its own can say what else is wrong although packages are missing
    errors = driver.wrong_versions(versions)
    errors += driver.stack_errors(python) if driver.installation or not missing else []
    if not (missing or errors) and driver.name in own_backends():
        # what a run imports, although the packages that are asked for by name are there
        try:
            error = ask_worker(python, "suite.worker.registry", driver.name, device, seconds=IMPORT_SECONDS)
            errors = [f"an import of its runs fails: {error}"] if error else []
        except UsageError as unanswered:
            errors = [str(unanswered)]
    advice = _stack_advice(python, missing, errors, driver.installation) if missing or errors else None
    return _check(f"backend {driver.name}", found, advice, "missing")


def _there(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{package} {version}" for package, version in versions.items() if version)


def _check(name: str, found: str, advice: str | None = None, bad: Literal["warning", "missing"] = "warning") -> Check:
    """``bad``: where there is advice; a warning is of what runs can do without."""
    return Check(name=name, state=bad if advice else "ok", found=found, advice=advice or None)


def commands_to_install(backend: str) -> list[str]:
    """Of a shell, for the stack in the versions that the suite pins. Raises UsageError for an unknown backend."""
    driver = find_backend(backend)
    if driver.installation:
        return [f"# {driver.installation}"]
    try:
        required = metadata.requires("rlhf-suite") or ()
    except metadata.PackageNotFoundError:  # it runs from a folder that nobody installed
        required = ()
    pins = {line.partition("==")[0]: line.partition(";")[0] for line in required}
    return [
        f"python3 -m venv {backend}-stack",
        f"{backend}-stack/bin/pip install {' '.join(pins.get(name, name) for name in driver.packages)}",
        f"suite run --backend {backend} --python {backend}={backend}-stack/bin/python",
    ]


def _stack_advice(python: str, missing: list[str], errors: list[str], installation: str | None) -> str:
    """How to get a stack that can be measured, and all that this one lacks, each package once."""
    if installation is None:
        install = f"install {', '.join(missing)} into {python}, or name another interpreter with --python"
        return install if missing else "; ".join(errors)
    named = {word for error in errors for word in re.findall(r"[\w-]+", error)}
    lacking = ", ".join(package for package in missing if package not in named)
    problems = [f"{python} lacks {lacking}"] if lacking else []
    return f"{installation}; missing in this one: {'; '.join([*problems, *errors])}"


def _gpu_check(gpus: tuple[LocalDevice, ...]) -> Check:
    if not gpus:
        return _check("gpu", "none (no NVIDIA driver answers)", "only the cpu ladder is meant for this machine")
    found = f"{len(gpus)} x {', '.join(sorted({gpu.name for gpu in gpus}))}"
    hidden = hidden_by_variable(gpus, os.environ)
    if hidden is not None:
        return _check("gpu", f"{found}; {hidden}", "runs here use what the variable leaves; unset it to use all")
    unknown = ", ".join(sorted({gpu.name for gpu in gpus if find_device(gpu.name) is None}))
    return _check("gpu", found, unknown and f"{unknown} is not in the device catalogue: MFU, HFU and MBU will be null")


def _cores_check() -> Check:
    cores, load, disturbed_by = len(os.sched_getaffinity(0)), psutil.getloadavg()[0], busy_now("cpu", ())
    is_noisy = disturbed_by or load > 0.5 * cores
    advice = "something else is running; figures measured now will be noisy" if is_noisy else None
    return _check("cores", f"{cores}{f'; {disturbed_by}' if disturbed_by else f', load {load:.1f}'}", advice)


def _disk_check(runs: Path) -> Check:
    folder = runs if runs.exists() else runs.absolute().parent
    if not folder.is_dir():
        return _check("results folder", f"{runs} is no folder", "name another with --runs", "missing")
    free = shutil.disk_usage(folder).free
    full = "free some space before a long ladder" if free < FREE_DISK_BYTES else None
    return _check("results folder", f"{free / 2**30:.1f} GiB free", full)


def runtime_check() -> Check:
    """Ask the runtime that Docker's own settings name."""
    try:
        runtime = connect()
    except UsageError as error:
        return _check("container runtime", "none", f"{error}; only --launcher docker needs one")
    facts = runtime.facts
    wanted = {image.tag(suite_version()) for image in images().values()}
    # those of this version of the suite's catalogue
    held = sorted(wanted & {tag for image in runtime.api.images() for tag in image.get("RepoTags") or ()})
    where = " on another machine" if facts.remote else ""
    found = f"{facts.name} {facts.version}{where}, {_gpus(runtime)}, images: {', '.join(held) or 'none'}"
    return _check("container runtime", found, None if held else "build an image: suite images build engines")


def _fits(room: int | None, precision: Precision) -> list[Fit]:
    rows, workload = [], find_workload("smoke")
    # of a stack that nobody ran it is not asked
    drivers = [driver for driver in backends().values() if not driver.experimental]
    for ladder, sizes in ladders().items():
        for size, driver in product(map(find_size, sizes), drivers):
            with suppress(ValueError):  # it has no layout for one device
                layout = driver.layout(size, workload, LayoutRequest(devices_per_node=1))
                work = resolve_work(size, workload, layout)
                floor = memory_floor(size, workload, work, layout, precision).bytes
                fits = None if room is None else floor <= room
                rows.append(Fit(ladder=ladder, size=size.name, backend=driver.name, floor_bytes=floor, fits=fits))
    return rows


def _gpus(runtime: Runtime) -> str:
    if access_of(runtime, "auto") == "cdi":
        return "GPUs by CDI"
    hook = None if runtime.facts.remote else shutil.which("nvidia-container-runtime-hook")
    has_hook = hook or "nvidia" in (runtime.info.get("Runtimes") or ())
    return "GPUs by NVIDIA's container toolkit" if has_hook else "no sign of GPUs"


_STATE_WIDTH = len("missing  ")


def print_diagnosis(diagnosis: Diagnosis, columns: int | None = None) -> None:
    """The checks line by line, then which sizes one device can hold at the least; broken at ``columns``, if any."""
    width = max(len(check.name) for check in diagnosis.checks) + 2
    for check in diagnosis.checks:
        lines = wrapped(check.found, columns, f"{check.state:<{_STATE_WIDTH}}{check.name:<{width}}")
        if check.advice:
            lines += wrapped(check.advice, columns, " " * _STATE_WIDTH + "-> ")
        say("\n".join(lines))
    floors = (
        "memory floor of one device (a lower bound, on the backend that needs least; what does not fit needs more "
        "devices or offload):"
    )
    lines = wrapped(floors, columns, rest="  ")
    least: dict[str, dict[str, Fit]] = {}
    for fit in diagnosis.fits:
        row = least.setdefault(fit.ladder, {})
        row[fit.size] = min(row.get(fit.size, fit), fit, key=lambda each: each.floor_bytes)
    for ladder, row in least.items():
        cells = [f"{name} {fit.floor_bytes / 2**30:.2f} GiB{'' if fit.fits else ' (no)'}" for name, fit in row.items()]
        lines += wrapped(unbroken(cells), columns, f"  {ladder}: ", "    ")
    say("\n".join(lines))
