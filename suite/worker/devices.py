"""The GPUs of this node, checked against those that its launcher asked for, before anything heavy is imported."""

import glob
import os
import re
import subprocess
from functools import lru_cache
from typing import Dict, List, Mapping, MutableMapping, NamedTuple, Optional, Tuple

#: set by a launcher that chose devices: ``ids:0,3``, ``count:2``, empty for none; not set: nobody chose
DEVICES_VARIABLE = "SUITE_DEVICES"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ASK_SECONDS = 60
_LISTED = re.compile(r"GPU (\d+): (.+) \(UUID: (\S+)\)")


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
    seen = seen_gpus()
    numbers = []
    for word in words:
        found = [number for uuid, number in seen.numbers.items() if uuid.startswith(word)]
        if not word.startswith("GPU-") or len(found) != 1:
            return
        numbers += found
    environment[_VISIBLE] = ",".join(numbers)
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"


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
    if form == "ids":
        ids = value.split(",")
        return len(ids), ids
    return (int(value), []) if form == "count" else (0, [])


@lru_cache(maxsize=1)
def seen_gpus() -> Seen:
    """NVIDIA's own list, or the device files where its lister is not there."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_ASK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        files = sorted(path for path in glob.glob("/dev/nvidia*") if re.fullmatch(r"nvidia\d+", os.path.basename(path)))
        return Seen(len(files), {}, ", ".join(files) or "no /dev/nvidia0")
    lines = listed.stdout.decode(errors="replace").splitlines()
    found = [match for match in map(_LISTED.match, lines) if match]
    shown = "; ".join(match.group(0) for match in found) or "; ".join(lines[:3]) or "nvidia-smi lists none"
    return Seen(len(found), {match.group(3): match.group(1) for match in found}, shown)
