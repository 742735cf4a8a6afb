"""What vLLM needs of a manifest, and of the interpreter; the standard library alone."""

import json
import os
from typing import Any, Dict, Tuple

from suite.worker.manifest import installed_version
from suite.worker.rank import ConfigError

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vllm.json")


def limits() -> Dict[str, Any]:
    """What ``vllm.json`` declares for driver and worker alike."""
    with open(_FILE, encoding="utf-8") as file:
        return json.load(file)


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
