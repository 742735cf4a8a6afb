"""From a backend's name to the class of its stack, imported only when a manifest names it.

``backends.json`` has a line for each backend of the suite: its class in the driver and its class in the worker.
"""

import importlib
import json
import os
from typing import Any, Dict, Mapping

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "backends.json")


def _declared(kind: str) -> Dict[str, str]:
    with open(_FILE, encoding="utf-8") as file:
        return {name: entry["worker"] for name, entry in json.load(file)[kind].items()}


#: backend -> ``module:class``
ENGINES, TRAINERS = map(_declared, ("engines", "trainers"))


def engine_class(name: str, device_type: str, kernels: str = "torch") -> Any:
    """Import the stack of backend ``name``. Raises ValueError for a backend without an engine."""
    return import_class("engine", ENGINES, name, device_type, kernels)


def trainer_class(name: str, device_type: str) -> Any:
    """As ``engine_class``, for a trainer."""
    return import_class("trainer", TRAINERS, name, device_type)


def import_class(kind: str, table: Mapping[str, str], name: str, device_type: str, kernels: str = "torch") -> Any:
    """The class at ``table[name]``; ``kind`` (engine, trainer) is for the message.

    Where the module's package defines ``prepare(device_type)``, that runs first: the variables a stack reads while it
    is imported, and what has to be imported before it. So does its ``choose_kernels(kernels)``, with the layout's.
    """
    if name not in table:
        raise ValueError("backend {!r} has no {} in this worker; known: {}".format(name, kind, ", ".join(table)))
    module, _, attribute = table[name].partition(":")
    package = importlib.import_module(module.rpartition(".")[0])
    for hook, value in (("prepare", device_type), ("choose_kernels", kernels)):
        before_import = getattr(package, hook, None)
        if before_import is not None:
            before_import(value)
    return getattr(importlib.import_module(module), attribute)
