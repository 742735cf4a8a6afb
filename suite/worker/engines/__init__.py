"""The engines: one package per training stack, imported only when a manifest names it."""

from typing import TYPE_CHECKING, Type

from suite.worker.registry import declared, import_class

if TYPE_CHECKING:
    from suite.worker.engines.base import Engine

#: backend -> ``module:class``; before it is imported its package's ``prepare(device_type)`` and ``choose_kernels`` run
ENGINES = declared("engines")


def engine_class(name: str, device_type: str, kernels: str = "torch") -> "Type[Engine]":
    """Import the stack of backend ``name``. Raises ValueError for a backend without an engine."""
    return import_class("engine", ENGINES, name, device_type, kernels)
