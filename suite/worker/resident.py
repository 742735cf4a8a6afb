"""The resident set of this process, read from Linux's /proc with the standard library alone."""

import re

_STATUS = "/proc/self/status"
_RESET_PEAK = "5"  # proc(5), /proc/pid/clear_refs: reset the peak resident set to the current one


def resident_bytes() -> int:
    """Resident set now (VmRSS)."""
    return _field("VmRSS")


def peak_resident_bytes() -> int:
    """Largest resident set since the last reset (VmHWM)."""
    return _field("VmHWM")


def reset_peak_resident() -> None:
    """Let the peak start again from the current resident set."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write(_RESET_PEAK)


def _field(name: str) -> int:
    with open(_STATUS) as file:
        found = re.search(r"^{}:\s+(\d+) kB$".format(name), file.read(), re.MULTILINE)
    assert found is not None, "{} has no {}".format(_STATUS, name)
    return int(found.group(1)) * 1024
