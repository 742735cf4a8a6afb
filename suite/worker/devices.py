"""Whether the GPUs of this node are those that the launcher asked for, and free; nothing heavy is imported for it."""

import glob
import os
import re
import subprocess
from functools import lru_cache
from typing import Any, Dict, List, Mapping, MutableMapping, NamedTuple, Optional, Tuple

#: set by a launcher that chose devices: ``ids:0,3``, ``count:2``, empty for none; not set: nobody chose
DEVICES_VARIABLE = "SUITE_DEVICES"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LISTED = re.compile(r"GPU (\d+): (.+) \(UUID: (\S+)\)")
#: set by a launcher for ranks that are not to run beside anything else
REQUIRE_IDLE_VARIABLE = "SUITE_REQUIRE_IDLE"
#: A driver keeps up to some hundred MiB of a GPU for itself; a share of the power limit may be rounding.
_GIB = 1 << 30
_USED_BYTES, _UTILISATION_PERCENT, _POWER_SHARE = _GIB, 10, 0.95
#: Reasons for low clocks that are there before any work: heat, a weak supply. Application clocks and power caps show
#: only under load.
_SLOWED_BY = ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


class DeviceError(Exception):
    """The GPUs that are there are not those that were asked for."""


class Seen(NamedTuple):
    """What is there: how many, the driver's numbers by UUID where they can be listed, and a line of all."""

    count: int
    numbers: Dict[str, str]
    shown: str


def check_devices(environment: Mapping[str, str]) -> None:
    """Raise DeviceError unless exactly the GPUs are there that the launcher asked for."""
    wanted = asked_for(environment)
    if wanted is None:
        return
    count, ids = wanted
    seen = seen_gpus()
    if seen.count != count:
        raise DeviceError("asked for {} GPUs, sees {}: {}".format(count, seen.count, seen.shown))
    missing = [name for name in ids if name.startswith("GPU-") and name not in seen.numbers]
    if missing and seen.numbers:
        raise DeviceError("asked for {}, sees other GPUs: {}".format(", ".join(missing), seen.shown))


def show_devices_by_number(environment: MutableMapping[str, str]) -> None:
    """Turn UUIDs in CUDA_VISIBLE_DEVICES into the driver's numbers: DeepSpeed and Ray's users read nothing else there.

    Words that name no whole GPU of this node stay as they are.
    """
    words = [word.strip() for word in environment.get(_VISIBLE, "").split(",")]
    if not any(word.startswith("GPU-") for word in words):
        return
    listed = seen_gpus().numbers.items()
    found = [[number for uuid, number in listed if "GPU-" in word and uuid.startswith(word)] for word in words]
    if all(len(numbers) == 1 for numbers in found):
        environment.update({_VISIBLE: ",".join(numbers[0] for numbers in found), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})


def check_torch_devices(environment: Mapping[str, str], count: int) -> None:
    """Raise DeviceError unless torch sees as many GPUs (``count``) as the launcher asked for."""
    wanted = asked_for(environment)
    if wanted is not None and wanted[0] != count:
        raise DeviceError("asked for {} GPUs, torch sees {}".format(wanted[0], count))


def asked_for(environment: Mapping[str, str]) -> Optional[Tuple[int, List[str]]]:
    """How many GPUs, and their ids where they were named; None where no launcher chose any."""
    text = environment.get(DEVICES_VARIABLE)
    if text is None:
        return None
    form, _, value = text.partition(":")
    ids = value.split(",") if form == "ids" else []
    return int(value) if form == "count" else len(ids), ids


@lru_cache(maxsize=1)
def seen_gpus() -> Seen:
    """NVIDIA's own list, or the device files where its lister is not there."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        files = sorted(path for path in glob.glob("/dev/nvidia*") if re.fullmatch(r"nvidia\d+", os.path.basename(path)))
        return Seen(len(files), {}, ", ".join(files) or "no /dev/nvidia0")
    lines = listed.stdout.decode(errors="replace").splitlines()
    found = [match for match in map(_LISTED.match, lines) if match]
    shown = "; ".join(match.group(0) for match in found) or "; ".join(lines[:3]) or "nvidia-smi lists none"
    return Seen(len(found), {match.group(3): match.group(1) for match in found}, shown)


def find_idle(device_type: str, gpu: Any) -> Optional[Dict[str, Any]]:
    """The ``idle`` facts of a rank's device: a GPU's (``suite.worker.nvml.NvmlGpu``) occupation, and in words what
    disturbs; None where it cannot be asked. The load of a CPU holds the run's own start too, so it is not judged.

    Raises DeviceError where the launcher wants devices of its own and this GPU is not free.
    """
    if device_type == "cpu":
        return {"load": os.getloadavg()[0], "cpus": len(os.sched_getaffinity(0))}
    if gpu is None:
        return None
    found = gpu.occupation()
    disturbed = disturbances(found)
    if os.environ.get(REQUIRE_IDLE_VARIABLE) == "1" and disturbed:
        raise DeviceError("--require-idle: the GPU is not free: {}".format("; ".join(disturbed)))
    return {**found, "disturbed_by": disturbed}


def disturbances(found: Mapping[str, Any]) -> List[str]:
    """What of a GPU's occupation would be measured too, or slows the device; empty for a GPU that is free."""
    lines = []
    used, utilisation = found["used_bytes"], found["utilisation"]
    if found["processes"]:
        held = sum(each["memory_bytes"] or 0 for each in found["processes"]) / _GIB
        many = len(found["processes"])
        lines.append("{} other process{} {:.1f} GiB".format(many, " holds" if many == 1 else "es hold", held))
    elif used is not None and used > _USED_BYTES:
        lines.append("{:.1f} GiB are in use by nobody who can be seen from here".format(used / _GIB))
    if utilisation is not None and utilisation > _UTILISATION_PERCENT:
        lines.append("it is {} % busy".format(utilisation))
    limit, usual = found["power_limit_watts"], found["power_limit_watts_default"]
    if limit is not None and usual is not None and limit < _POWER_SHARE * usual:
        lines.append("its power limit is {:.0f} W instead of {:.0f} W".format(limit, usual))
    slowed = [name for name in found["throttle_reasons"] if name in _SLOWED_BY]
    lines.extend("its clocks are held down by {}".format(name) for name in slowed)
    return lines
