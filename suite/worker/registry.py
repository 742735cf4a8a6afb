"""From a backend's name to the class of its stack, imported only when a manifest names it.

``backends.json`` has a line for each backend of the suite: its class in the driver and its class in the worker.
"""

import importlib
from typing import Any

from suite.worker.manifest import declared

#: backend -> ``module:class``
ENGINES, TRAINERS = (
    {name: entry["worker"] for name, entry in declared("backends")[kind].items()} for kind in ("engines", "trainers")
)


def backend_class(name: str, device_type: str, kernels: str = "torch") -> Any:
    """Import the stack of a backend of the worker's own; its class."""
    return import_class({**ENGINES, **TRAINERS}[name], device_type, kernels)


def import_class(target: str, device_type: str, kernels: str = "torch") -> Any:
    """The class that ``target`` names, as ``module:class``.

    Where the module's package defines ``prepare(device_type)``, that runs first: the variables a stack reads while it
    is imported, and what has to be imported before it. So does its ``choose_kernels(kernels)``, with the layout's.
    """
    module, _, attribute = target.partition(":")
    package = importlib.import_module(module.rpartition(".")[0])
    for hook, value in (("prepare", device_type), ("choose_kernels", kernels)):
        before_import = getattr(package, hook, None)
        if before_import is not None:
            before_import(value)
    return getattr(importlib.import_module(module), attribute)
