"""Whether a rank's device was free before the run: what else used it, and what held its clocks down."""

import os
from typing import Any, Dict, List, Mapping, Optional

from suite.worker.devices import DeviceError

#: set by a launcher for ranks that are not to run beside anything else
REQUIRE_IDLE_VARIABLE = "SUITE_REQUIRE_IDLE"
#: A driver keeps up to some hundred MiB of a GPU for itself; a share of the power limit may be rounding.
_GIB = 1 << 30
_USED_BYTES, _UTILISATION_PERCENT, _POWER_SHARE = _GIB, 10, 0.95
#: Reasons for low clocks that are there before any work: heat, a weak supply. Application clocks and power caps show
#: only under load.
_SLOWED_BY = ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


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
