"""The trainers: stacks that bring their own PPO iteration, imported only when a manifest names them."""

from typing import TYPE_CHECKING, Type

from suite.worker.registry import declared, import_class

if TYPE_CHECKING:
    from suite.worker.trainers.base import Trainer

#: backend -> ``module:class``; a package's ``prepare(device_type)`` runs before its trainer is imported
TRAINERS = declared("trainers")


def trainer_class(name: str, device_type: str) -> "Type[Trainer]":
    """Import the stack of backend ``name``. Raises ValueError for a backend without a trainer."""
    return import_class("trainer", TRAINERS, name, device_type)
