"""From a backend's name to the class of its stack, imported only when a manifest names it.

``backends.json`` has a line for each backend of the suite: its class in the driver and its class in the worker.
"""

import importlib
import json
import os
from typing import Any, Dict, Mapping

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "backends.json")


def declared(kind: str) -> Dict[str, str]:
    """Backend -> ``module:class`` in the worker, of ``engines`` or of ``trainers``."""
    with open(_FILE, encoding="utf-8") as file:
        return {name: entry["worker"] for name, entry in json.load(file)[kind].items()}


def import_class(kind: str, table: Mapping[str, str], name: str, device_type: str, kernels: str = "torch") -> Any:
    """The class at ``table[name]``, which reads ``module:attribute``.

    Where the module's package defines ``prepare(device_type)``, that runs first: the variables a stack reads while it
    is imported, and what has to be imported before it. So does its ``choose_kernels(kernels)``, with the layout's.
    ``kind`` (engine, trainer) is for the message.
    Raises ValueError for a name that is not in the table.
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
