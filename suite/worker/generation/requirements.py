"""What vLLM needs of a manifest, and of the interpreter; the standard library alone."""

import json
import os
from typing import Any, Dict, List, Tuple

from suite.worker.manifest import installed_version
from suite.worker.rank import ConfigError

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vllm.json")


def limits() -> Dict[str, Any]:
    """What ``vllm.json`` declares for driver and worker alike."""
    with open(_FILE, encoding="utf-8") as file:
        return json.load(file)


def check(manifest: Dict[str, Any]) -> None:
    """Raise ConfigError, with every reason, where vLLM cannot generate for this manifest on this device."""
    size, layout, device = manifest["size"], manifest["layout"], manifest["measure"]["device"]
    known = limits()
    errors: List[str] = []
    if size["architecture"] not in known["architectures"]:
        errors.append("it is not given the weights of {} models here".format(size["architecture"]))
    width = size.get("head_width") or size["hidden"] // size["heads"]
    if size["architecture"] == "qwen2" and width * size["heads"] != size["hidden"]:
        errors.append("its qwen2 models have heads of width hidden / heads alone")
    if device == "cpu" and width not in known["cpu_head_widths"]:
        errors.append("on a CPU it has no attention for heads of width {}".format(width))
    if device == "cpu" and layout.get("engine_sleep"):
        errors.append("on a CPU it cannot sleep")
    if layout["pipeline"] > 1 and layout.get("placement", "colocated") == "colocated":
        errors.append("it holds whole layers on every rank, so pipeline parallel must be 1")
    if errors:
        raise ConfigError("vLLM cannot generate for this run: " + "; ".join(errors))


def version(device: str) -> Tuple[str, str]:
    """Name and version of the package that is there for such a device. Raises ConfigError for none or another."""
    known = limits()
    name = known["packages"][device]
    found = installed_version(name)
    if found is None:
        raise ConfigError("generation by vLLM on a {} needs the package {}".format(device, name))
    if ".".join(found.split(".")[:2]) not in known["versions"]:
        wanted = " or ".join(known["versions"])
        raise ConfigError("{} {} is there, but generation was made for {}".format(name, found, wanted))
    return name, found
