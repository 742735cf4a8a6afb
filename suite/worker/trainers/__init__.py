"""The trainers: stacks that bring their own PPO iteration, imported only when a manifest names them."""

from typing import Any

from suite.worker.registry import declared, import_class

#: backend -> ``module:class``; a package's ``prepare(device_type)`` runs before its trainer is imported
TRAINERS = declared("trainers")


def trainer_class(name: str, device_type: str) -> Any:
    """Import the stack of backend ``name``. Raises ValueError for a backend without a trainer."""
    return import_class("trainer", TRAINERS, name, device_type)
