"""From a backend's name to the class of its stack, imported only when a manifest names it."""

import importlib
from typing import Any, Mapping


def import_class(kind: str, table: Mapping[str, str], name: str, device_type: str) -> Any:
    """The class at ``table[name]``, which reads ``module:attribute``.

    Where the module's package defines ``prepare(device_type)``, that runs first: the variables a stack reads while it
    is imported, and what has to be imported before it. ``kind`` (engine, trainer) is for the message.
    Raises ValueError for a name that is not in the table.
    """
    if name not in table:
        raise ValueError("backend {!r} has no {} in this worker; known: {}".format(name, kind, ", ".join(table)))
    module, _, attribute = table[name].partition(":")
    package = importlib.import_module(module.rpartition(".")[0])
    prepare = getattr(package, "prepare", None)
    if prepare is not None:
        prepare(device_type)
    return getattr(importlib.import_module(module), attribute)
