"""The engines: one package per training stack, imported only when a manifest names it."""

from typing import Any

from suite.worker.registry import declared, import_class

#: backend -> ``module:class``; before it is imported its package's ``prepare(device_type)`` and ``choose_kernels`` run
ENGINES = declared("engines")


def engine_class(name: str, device_type: str, kernels: str = "torch") -> Any:
    """Import the stack of backend ``name``. Raises ValueError for a backend without an engine."""
    return import_class("engine", ENGINES, name, device_type, kernels)
