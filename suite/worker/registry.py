"""From a backend's name to the class of its stack, imported only when a manifest names it.

``backends.json`` has a line for each backend of the suite: its class in the driver and its class in the worker.

``python -m suite.worker.registry BACKEND DEVICE`` imports what a run of a backend imports in any of its processes and
prints why that fails as JSON, null where it does not: the driver asks before anybody waits for a run to find out.
"""

import importlib
import json
import os
import sys
from typing import Any, Optional

from suite.worker.manifest import declared
from suite.worker.trainers.scratch import use_own_folder

#: backend -> ``module:class``
ENGINES, TRAINERS = (
    {name: entry["worker"] for name, entry in declared("backends")[kind].items()} for kind in ("engines", "trainers")
)


def backend_class(name: str, device_type: str, kernels: str = "torch") -> Any:
    """Import the stack of a backend of the worker's own; its class.

    Where the module's package defines ``prepare(device_type)``, that runs first: the variables a stack reads while it
    is imported, and what has to be imported before it. So does its ``choose_kernels(kernels)``, with the layout's.
    """
    module, _, attribute = {**ENGINES, **TRAINERS}[name].partition(":")
    package = importlib.import_module(module.rpartition(".")[0])
    for hook, value in (("prepare", device_type), ("choose_kernels", kernels)):
        getattr(package, hook, lambda _: None)(value)
    return getattr(importlib.import_module(module), attribute)


def problem(backend: str, device_type: str) -> Optional[str]:
    """What cannot be imported first, in a line; None where everything can."""
    try:
        if backend in TRAINERS:
            use_own_folder()
            backend_class(backend, device_type).import_all(device_type)
        else:
            backend_class(backend, device_type)
    except Exception as error:  # noqa: BLE001 - whatever a stack raises while it is imported
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return ": ".join([type(error).__name__, *lines[:1]])
    return None


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever a stack prints is no answer
    os.write(answer, json.dumps(problem(*sys.argv[1:])).encode())
    os._exit(0)  # threads of a stack may not end
