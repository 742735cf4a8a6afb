"""Which of a machine's GPUs its runs use: what CUDA_VISIBLE_DEVICES leaves, and what a user names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from suite.launch.probe import LocalDevice
from suite.spec.base import UsageError

VISIBLE = "CUDA_VISIBLE_DEVICES"
#: an index as CUDA reads it: the number that a word begins with
_INDEX = re.compile(r"\s*(\d+)")
_MIG = "MIG-"


def visible_gpus(gpus: Sequence[LocalDevice], environment: Mapping[str, str]) -> tuple[LocalDevice, ...]:
    """The GPUs that CUDA shows to a process of this environment, in the order in which it numbers them there.

    The variable holds indices, beginnings of UUIDs that fit one GPU, or a slice of a GPU (MIG), of which a process gets
    one. CUDA stops at the first word that names none (``-1``, nothing) and shows none where one is named twice. Indices
    are taken in the order of the PCI bus, which is the driver's; ranks are told to do so too.
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
    found = [mig_slice(name) if name.startswith(_MIG) else _named(gpus, name) for name in names]
    unknown = [name for name, gpu in zip(names, found, strict=True) if gpu is None]
    if unknown:
        has = f"has 0 to {len(gpus) - 1} (`nvidia-smi -L` lists them)" if gpus else "shows none to this process"
        raise UsageError(f"there is no GPU {', '.join(unknown)}; this host {has}")
    chosen = tuple(gpu for gpu in found if gpu is not None)
    if len({gpu.uuid for gpu in chosen}) < len(chosen):
        raise UsageError(f"a GPU is named twice in {','.join(names)}")
    return chosen


def local_choice(
    gpus: Sequence[LocalDevice], names: Sequence[str], environment: Mapping[str, str]
) -> tuple[LocalDevice, ...]:
    """The GPUs that ranks on this host may use: those named, else those that the variable names, else of several kinds
    the one with the most memory in all, so that a card for a screen is none of them.

    Raises UsageError for a GPU that is named and is not there, or is hidden by the variable.
    """
    shown = visible_gpus(gpus, environment)
    if names:
        chosen = named_gpus(gpus, names)
        hidden = [name for name, gpu in zip(names, chosen, strict=True) if gpu not in shown]
        if VISIBLE in environment and hidden:
            raise UsageError(
                f"{VISIBLE}={environment[VISIBLE]} hides GPU {', '.join(hidden)}; unset it, or name others"
            )
        if len(chosen) > 1 and any(gpu.uuid.startswith(_MIG) for gpu in chosen):
            raise UsageError("CUDA shows a process one slice of a GPU (MIG) and nothing else: name that one alone")
        return chosen
    return shown if VISIBLE in environment else one_kind(shown)


def one_kind(gpus: Sequence[LocalDevice]) -> tuple[LocalDevice, ...]:
    """Of GPUs of several names, those of one: the most memory in all, then the most GPUs."""
    kinds: dict[str, list[LocalDevice]] = {}
    for gpu in gpus:
        kinds.setdefault(gpu.name, []).append(gpu)
    most = max(kinds.values(), key=lambda kind: (sum(gpu.memory_bytes or 0 for gpu in kind), len(kind)), default=[])
    return tuple(most)


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


def why_no_gpu(in_container: bool, devices: Path = Path("/dev")) -> str:
    """A line for CUDA that was asked for where no driver shows a GPU: what is missing, and what to do."""
    if not in_container:
        return "no NVIDIA driver shows a GPU here (`suite doctor` says what it looked for)"
    files = sorted(path.name for path in devices.glob("nvidia[0-9]*"))
    though = f", though /dev/{files[0]} is there" if files else ""
    return (
        f"gpu_unavailable: no NVIDIA driver shows a GPU in this container{though}; start it with NVIDIA's container "
        "toolkit and NVIDIA_DRIVER_CAPABILITIES=compute,utility, or measure on the CPU (--device cpu; with Compose "
        "SUITE_DEVICE=cpu)"
    )
