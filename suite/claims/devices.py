"""Devices by the names that published tables give them."""

import re

from suite.spec.catalogue import devices, find_device
from suite.spec.device import Device

_FAMILIES = (
    *("GB300", "GB200", "B300", "B200", "H200", "H100", "H20", "A100", "A800", "A6000", "V100"),
    *("MI300X", "MI250X", "L40S", "4090"),
)


def published_device(name: str, memory_gib: float | None) -> Device | None:
    """The device that a table calls ``name``, its memory size choosing the variant; ``None`` for an unknown one."""
    known = find_device(name)
    if known is not None:
        return known
    plain = re.sub(r"[\s_-]+", "", name.upper())
    family = next((family for family in _FAMILIES if re.search(rf"(?<![A-Z0-9]){family}(?!\d)", name.upper())), None)
    family = family or next((family for family in _FAMILIES if family in plain), None)
    if family is None:
        return None
    rivals = [
        device for device in devices().values() if family in device.name.upper().split("-") or family == device.name
    ]
    for word in ("PCIE", "NVL"):
        rivals = [device for device in rivals if (word in device.name.upper()) == (word in plain)] or rivals
    rivals = [device for device in rivals if "module" not in device.name] or rivals
    wanted = (memory_gib or 80) * 2**30
    return min(rivals, key=lambda device: abs(device.memory_bytes - wanted), default=None)
