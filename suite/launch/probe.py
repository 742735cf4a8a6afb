"""What this machine has: its host, the packages of a stack's interpreter, its devices, and which of these runs use."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import Field

from suite.spec.base import Frozen, UsageError

ASK_SECONDS = 30.0
_IDENTITY = Path(__file__).parents[1] / "worker" / "identity.py"
ASK_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for package in sys.argv[1:]:
    try:
        found[package] = version(package)
    except PackageNotFoundError:
        found[package] = None
print(json.dumps(found))
"""


class LocalDevice(Frozen):
    """One GPU of this machine, as its driver describes it."""

    index: int = Field(ge=0, description="the driver's own order, which CUDA_VISIBLE_DEVICES does not change")
    uuid: str
    name: str
    memory_bytes: int | None = Field(description="null where the driver does not say (memory shared with the host)")


def host_facts() -> dict[str, Any]:
    """``cpu`` {model, physical cores, threads this process may run on}, ``memory_bytes``, ``kernel``, ``python``,
    ``container``, ``host``. What is not known is ``None``."""
    import psutil

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    model = next(models, None) or platform.processor() or None
    return {
        "cpu": {"model": model, "cores": psutil.cpu_count(logical=False), "threads": len(usable_cpus())},
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "container": container_id(),
        "host": platform.node(),
    }


def local_devices() -> tuple[LocalDevice, ...]:
    """The NVIDIA GPUs of this machine; empty where no driver answers."""
    with nvml_of_this_host() as nvml:
        return () if nvml is None else tuple(_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))


def physical_cores(cpus: Iterable[int]) -> int:
    """How many cores of this host the CPUs (as the kernel numbers them) belong to: threads of one core count once."""
    return len({_siblings(number) for number in cpus})


def usable_cpus() -> tuple[int, ...]:
    """Numbers of the CPUs that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def stack_versions(python: str, packages: tuple[str, ...]) -> dict[str, str | None]:
    """Installed version of each package in the interpreter ``python``; ``None`` for a package it does not have. Raises
    UsageError when it cannot be started, does not answer, or is no Python 3.8 or newer."""
    return told_by(python, ASK_VERSIONS, *packages)


def ask_worker(python: str, module: str, *arguments: str, seconds: float = ASK_SECONDS) -> Any:
    """What a module of the worker prints as JSON in the environment of ranks. Raises as ``stack_versions``."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return _answer_of(python, (python, "-m", module, *arguments), seconds, {**os.environ, "PYTHONPATH": path})


def stack_code(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Digest of the code of each package that the interpreter has, all of which is read: half a second for torch,
    DeepSpeed and transformers. Raises UsageError as ``stack_versions``."""
    found = told_by(python, _IDENTITY.read_text(encoding="utf-8"), *packages)
    return {package: told["digest"] for package, told in found.items() if told is not None}


def told_by(python: str, program: str, *arguments: str) -> dict[str, Any]:
    """The JSON object that a program prints under an interpreter. Raises UsageError as ``stack_versions``."""
    found = _answer_of(python, (python, "-c", program, *arguments), ASK_SECONDS)
    if not isinstance(found, dict):
        raise UsageError(f"{python} is no Python 3.8 or newer; name one with --python")
    return found


def _answer_of(python: str, command: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> Any:
    try:
        answer = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=True
        )
        return json.loads(answer.stdout)
    except OSError as error:
        raise UsageError(f"no interpreter at {python}: {error.strerror}; name one with --python") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{python} did not answer in {seconds:g} s; name an interpreter with --python") from error
    except (subprocess.CalledProcessError, ValueError) as error:
        raise UsageError(f"{python} is no Python 3.8 or newer; name one with --python") from error


def container_id() -> str | None:
    """Id of the container this process is in, or its host name where a container shows no id; ``None`` on a host."""
    found = id_in_mounts(Path("/proc/self/mountinfo").read_text())
    is_inside = Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    return found or (platform.node() if is_inside else None)


def id_in_mounts(mountinfo: str) -> str | None:
    """The container id in a ``/proc/self/mountinfo`` text: /etc/hostname is mounted from a folder named by it."""
    roots = (line.split()[3] for line in mountinfo.splitlines() if " /etc/hostname " in line)
    return next((found[1] for root in roots if (found := re.search(r"/([0-9a-f]{64})/", root))), None)


def _siblings(cpu: int) -> str:
    """The kernel's list of the threads of a CPU's core; its own number where the kernel does not say."""
    with suppress(OSError):
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    return str(cpu)


@contextmanager
def nvml_of_this_host() -> Iterator[ModuleType | None]:
    """The NVML binding while its library is initialised; ``None`` where there is no driver to talk to."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _device(nvml: ModuleType, index: int) -> LocalDevice:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory: int | None = None
    with suppress(nvml.NVMLError_NotSupported):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle).total
    name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
    return LocalDevice(index=index, uuid=uuid, name=name, memory_bytes=memory)


VISIBLE = "CUDA_VISIBLE_DEVICES"
#: an index as CUDA reads it: the number that a word begins with
_INDEX = re.compile(r"\s*(\d+)")
_MIG = "MIG-"


def visible_gpus(gpus: Sequence[LocalDevice], environment: Mapping[str, str]) -> tuple[LocalDevice, ...]:
    """The GPUs that CUDA shows to a process of this environment, in the order in which it numbers them there.

    The variable holds indices in the order of the PCI bus, beginnings of UUIDs that fit one GPU, or a slice of a GPU
    (MIG), of which a process gets one. CUDA stops at the first word that names none, and shows none named twice.
    """
    text = environment.get(VISIBLE)
    if text is None:
        return tuple(gpus)
    shown: list[LocalDevice] = []
    for word in text.split(","):
        if word.strip().startswith(_MIG):
            return tuple(shown) or (mig_slice(word.strip()),)
        gpu = _named(gpus, word)
        if gpu is None:
            break
        shown.append(gpu)
    return tuple(shown) if len({gpu.uuid for gpu in shown}) == len(shown) else ()


def named_gpus(gpus: Sequence[LocalDevice], names: Sequence[str]) -> tuple[LocalDevice, ...]:
    """The GPUs of these indices, UUIDs (or their beginnings) or slices. Raises UsageError for one that is not there."""
    found = {name: mig_slice(name) if name.startswith(_MIG) else _named(gpus, name) for name in names}
    unknown = [name for name, gpu in found.items() if gpu is None]
    if unknown:
        has = f"has 0 to {len(gpus) - 1} (`nvidia-smi -L` lists them)" if gpus else "shows none to this process"
        raise UsageError(f"there is no GPU {', '.join(unknown)}; this host {has}")
    chosen = tuple(gpu for gpu in found.values() if gpu is not None)
    if len({gpu.uuid for gpu in chosen}) < len(names):
        raise UsageError(f"a GPU is named twice in {','.join(names)}")
    return chosen


def local_choice(
    gpus: Sequence[LocalDevice], names: Sequence[str], environment: Mapping[str, str]
) -> tuple[LocalDevice, ...]:
    """The GPUs that ranks on this host may use: those named, else those that the variable names, else those of one
    kind. Raises UsageError for a GPU that is named and is not there, or is hidden by the variable."""
    shown = visible_gpus(gpus, environment)
    if not names:
        return shown if VISIBLE in environment else one_kind(shown)
    chosen = named_gpus(gpus, names)
    hidden = ", ".join(name for name, gpu in zip(names, chosen, strict=True) if gpu not in shown)
    if VISIBLE in environment and hidden:
        raise UsageError(f"{VISIBLE}={environment[VISIBLE]} hides GPU {hidden}; unset it, or name others")
    if len(chosen) > 1 and any(gpu.uuid.startswith(_MIG) for gpu in chosen):
        raise UsageError("CUDA shows a process one slice of a GPU (MIG) and nothing else: name that one alone")
    return chosen


def one_kind(gpus: Sequence[LocalDevice]) -> tuple[LocalDevice, ...]:
    """Of GPUs of several names, those of one: the most memory in all, then the most GPUs; no card for a screen."""
    kinds = [tuple(gpu for gpu in gpus if gpu.name == name) for name in dict.fromkeys(gpu.name for gpu in gpus)]
    return max(kinds, key=lambda kind: (sum(gpu.memory_bytes or 0 for gpu in kind), len(kind)), default=())


def hidden_by_variable(gpus: Sequence[LocalDevice], environment: Mapping[str, str]) -> str | None:
    """A line where the variable hides some or all of these GPUs."""
    shown = len(visible_gpus(gpus, environment))
    if VISIBLE not in environment or shown == len(gpus):
        return None
    which = "all" if shown == 0 else f"{len(gpus) - shown} of them"
    return f"{VISIBLE}={environment[VISIBLE]} hides {which}"


def mig_slice(name: str) -> LocalDevice:
    """A slice of a GPU (MIG): it has its own name and less memory than the whole; how much is not known."""
    return LocalDevice(index=0, uuid=name, name="MIG device", memory_bytes=None)


def _named(gpus: Sequence[LocalDevice], word: str) -> LocalDevice | None:
    """The one GPU of an index or of the beginning of a UUID."""
    index, name = _INDEX.match(word), word.strip()
    if index:
        return next((gpu for gpu in gpus if gpu.index == int(index[1])), None)
    fitting = [gpu for gpu in gpus if name.startswith("GPU-") and gpu.uuid.startswith(name)]
    return fitting[0] if len(fitting) == 1 else None


def why_no_gpu(in_container: bool) -> str:
    """A line for CUDA that was asked for where no driver shows a GPU: what is missing, and what to do."""
    if not in_container:
        return "no NVIDIA driver shows a GPU here (`suite doctor` says what it looked for)"
    though = next((f", though {path} is there" for path in sorted(Path("/dev").glob("nvidia[0-9]*"))), "")
    return (
        f"gpu_unavailable: no NVIDIA driver shows a GPU in this container{though}; start it with NVIDIA's container "
        "toolkit and NVIDIA_DRIVER_CAPABILITIES=compute,utility, or measure on the CPU (--device cpu; with Compose "
        "SUITE_DEVICE=cpu)"
    )
